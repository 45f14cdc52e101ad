//! The kinds of evidence, each a pure function over what was measured (design §5).

pub mod error;
pub mod exactness;
pub mod probes;
pub mod repeat;
pub mod sanity;
pub mod twin;

use mlx_parity_tensor::{Dtype, HostTensor};

/// Distance of neighbouring numbers of a dtype at a magnitude.
pub fn spacing(dtype: Dtype, magnitude: f64) -> f64 {
    let (digits, lowest) = match dtype {
        Dtype::F16 => (10, -14),
        Dtype::Bf16 => (7, -126),
        _ => (23, -126),
    };
    let exponent = if magnitude > 0.0 && magnitude.is_finite() {
        magnitude.log2().floor() as i32
    } else {
        lowest
    };
    2f64.powi(exponent.max(lowest) - digits)
}

/// `[2, 0, 31]`, the place of an element.
pub fn place(shape: &[usize], mut at: usize) -> String {
    let mut index = vec![0; shape.len()];
    for (extent, index) in shape.iter().zip(&mut index).rev() {
        let extent = (*extent).max(1);
        *index = at % extent;
        at /= extent;
    }
    format!("{index:?}")
}

/// `[2, 31]: got 0.0031, want 1`
pub fn got_want(found: &HostTensor, at: usize, want: f64) -> String {
    format!("{}: got {}, want {}", place(found.shape(), at), short(found.value_at(at)), short(want))
}

/// A number as people read it.
pub fn short(x: f64) -> String {
    if x == 0.0 || (1e-3..1e6).contains(&x.abs()) || !x.is_finite() {
        format!("{x:.5}").trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{x:.3e}")
    }
}

/// What a number is, before how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// No number.
    Nan,
    /// +∞
    Up,
    /// −∞
    Down,
    /// Any other.
    Finite,
}

impl Class {
    /// Of a number.
    pub fn of(x: f64) -> Self {
        match x {
            _ if x.is_nan() => Self::Nan,
            f64::INFINITY => Self::Up,
            f64::NEG_INFINITY => Self::Down,
            _ => Self::Finite,
        }
    }
}

#[cfg(test)]
mod tests;
