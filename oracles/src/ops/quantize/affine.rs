//! Affine codes: w ≈ scale · code + bias.

use super::{Mode, Scales, unpack};
use crate::error::OracleError;
use crate::tensor::{PackedTensor, Tensor, Tensor64};

/// In what each step is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// The real function.
    F64,
    /// Each step rounded to float32, as MLX's kernels do, so that codes and scales can be compared
    /// exactly.
    F32,
}

impl Arithmetic {
    /// Rounding float64 results of +, −, ·, / of float32 values to float32 is the float32 operation
    /// itself.
    pub(super) fn round(self, value: f64) -> f64 {
        match self {
            Self::F64 => value,
            Self::F32 => f64::from(value as f32),
        }
    }
}

/// Smallest step, so that constant groups do not divide by zero (`mlx/backend/cpu/quantized.cpp`).
const SMALLEST_STEP: f32 = 1e-7;

/// Step and bias of one group: the end of the range that is larger in magnitude is represented
/// exactly, and zero is a code.
fn fit(group: &[f64], levels: f64, arithmetic: Arithmetic) -> (f64, f64) {
    let low = group.iter().copied().fold(f64::INFINITY, f64::min);
    let high = group.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = arithmetic.round(high - low);
    let step = arithmetic.round(range / levels).max(f64::from(SMALLEST_STEP));
    let low_is_larger = low.abs() > high.abs();
    let (step, edge) = if low_is_larger { (step, low) } else { (-step, high) };
    let steps_to_zero = arithmetic.round(edge / step).round_ties_even();
    if steps_to_zero == 0.0 {
        return (step, 0.0);
    }
    (arithmetic.round(edge / steps_to_zero), edge)
}

fn code(w: f64, step: f64, bias: f64, levels: f64, arithmetic: Arithmetic) -> u32 {
    let position = arithmetic.round(arithmetic.round(w - bias) / step);
    position.round_ties_even().clamp(0.0, levels) as u32
}

pub(super) fn quantize(
    w: &[f64],
    groups: Vec<usize>,
    bits: u32,
    group: usize,
    arithmetic: Arithmetic,
) -> (Vec<u32>, Scales) {
    let levels = f64::from((1_u32 << bits) - 1);
    let fits: Vec<(f64, f64)> = w.chunks(group).map(|g| fit(g, levels, arithmetic)).collect();
    let codes = w.iter().enumerate().map(|(i, &w)| {
        let (step, bias) = fits[i / group];
        code(w, step, bias, levels, arithmetic)
    });
    let codes = codes.collect();
    let (scales, biases) = fits.into_iter().unzip();
    let scales = Tensor64::trusted(groups.clone(), scales);
    (codes, Scales::Affine { scales, biases: Tensor64::trusted(groups, biases) })
}

/// How far each of an engine's codes is from where its own scale and bias put `w`: (w − bias)/scale
/// − code, in steps.
///
/// A correct quantizer keeps this within half a step and its rounding, except at the clamped ends.
pub fn affine_codes(
    w: &Tensor64,
    words: &PackedTensor,
    scales: &Tensor64,
    biases: &Tensor64,
    mode: Mode,
) -> Result<Tensor64, OracleError> {
    let codes: Tensor<u32> = unpack(words, mode.bits());
    if codes.shape() != w.shape() {
        return Err(OracleError::shape("affine_codes", codes.shape(), format!("{:?}", w.shape())));
    }
    let levels = f64::from((1_u32 << mode.bits()) - 1);
    let off = |(i, (&w, &code)): (usize, (&f64, &u32))| {
        let at = i / mode.group_size();
        ((w - biases.data()[at]) / scales.data()[at]).clamp(0.0, levels) - f64::from(code)
    };
    let data = w.data().iter().zip(codes.data()).enumerate().map(off).collect();
    Tensor64::new(w.shape(), data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::quantize::{QuantizeRule, quantize};

    #[test]
    fn the_larger_end_is_exact_and_zero_is_a_code() {
        let group: Vec<f64> = (0..32).map(|i| -3.0 + f64::from(i) * 5.0 / 31.0).collect();
        let (step, bias) = fit(&group, 15.0, Arithmetic::F64);
        assert_eq!(bias, -3.0);
        assert_eq!((-bias / step).fract(), 0.0);
        let (step, bias) =
            fit(&group.iter().map(|v| -v).collect::<Vec<_>>(), 15.0, Arithmetic::F64);
        assert_eq!(bias, 3.0);
        assert!(step < 0.0);
    }

    #[test]
    fn codes_are_within_half_a_step_of_their_elements_and_a_wrong_code_is_not() {
        let mode = Mode::Affine { bits: 5, group_size: 32 };
        let w =
            Tensor64::new([1, 64], (0..64).map(|i| f64::from(i * i % 41) - 7.0).collect()).unwrap();
        let q = quantize(&w, mode, QuantizeRule::MLX).unwrap();
        let Scales::Affine { scales, biases } = q.scales() else { unreachable!() };
        let off = affine_codes(&w, q.words(), scales, biases, mode).unwrap();
        assert!(off.max_abs() <= 0.5 + 1e-6);
        let mut wrong = q.words().clone();
        wrong.data_mut()[1] ^= 1 << 9;
        assert!(affine_codes(&w, &wrong, scales, biases, mode).unwrap().max_abs() > 0.5);
    }
}
