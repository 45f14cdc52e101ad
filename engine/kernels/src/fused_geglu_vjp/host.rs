//! Gradients of gated gelu on the host, sixteen elements at a time, in float64 and rounded to float32: its own
//! rounding errors would be larger than that of the result.
//!
//! With `u = sqrt(2 / pi) (x + 0.044715 x^3)`, gelu is `x s` where `s = 1 / (1 + exp(-2 u))`, and its derivative
//! `s + 2 x s (1 - s) u'`; no difference of like numbers is taken.

use mlx_parity_tensor::Dtype;

use super::{ID, Operands};
use crate::call::Out;
use crate::error::KernelError;
use crate::how::How;
use crate::lanes::{LANES, Simd, Task, Width};
use crate::numbers::{Bf16, F16, F32, Format};
use crate::parallel;
use crate::rows::Rows;

/// Multiply-adds that an element costs as much as.
const COST: usize = 32;
/// sqrt(2 / pi).
const SLOPE: f64 = 0.797_884_560_802_865_4;
/// The factor of the cube.
const CUBE: f64 = 0.044_715;
/// From here on, either side of zero, `s` is 0 or 1 to the last bit of float64.
const FLAT: f64 = 16.0;

/// Computes a call.
pub(super) fn run(of: Operands<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
    match of.cotangent.data.dtype() {
        Dtype::F16 => run_in::<F16>(of, how, out),
        Dtype::Bf16 => run_in::<Bf16>(of, how, out),
        _ => run_in::<F32>(of, how, out),
    }
}

fn run_in<F: Format>(of: Operands<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
    let malformed = |what: &str| KernelError::Malformed { kernel: ID, what: what.into() };
    let views = [of.pair.gate, of.pair.up, of.cotangent];
    let rows = Rows::<F>::of(views).ok_or_else(|| malformed("operands differ"))?;
    let [dgate, dup] = out else { return Err(malformed("wanted two results")) };
    let (Some(dgate), Some(dup)) = (F::out(dgate), F::out(dup)) else {
        return Err(malformed("a result has another dtype"));
    };
    let len = of.cotangent.len();
    if dgate.len() != len || dup.len() != len {
        return Err(malformed("a result has another length"));
    }
    let width = Width::choose(ID, how.path)?;
    let rows = if how.is("strides_ignored") { rows.map(Rows::without_gaps) } else { rows };
    let (dgate, dup) = if how.is("results_swapped") { (dup, dgate) } else { (dgate, dup) };
    parallel::pairs(dgate, dup, rows[0].width(), len * COST, |row, dgate, dup| {
        let [gate, up, cotangent] = rows.map(|rows| rows.row(row, dgate.len()));
        let [gate, up, cotangent] = [&*gate, &*up, &*cotangent];
        width.run(Row::<F> { gate, up, cotangent, dgate, dup, how });
    });
    Ok(())
}

/// One row.
struct Row<'a, F: Format> {
    gate: &'a [F::Bits],
    up: &'a [F::Bits],
    cotangent: &'a [F::Bits],
    dgate: &'a mut [F::Bits],
    dup: &'a mut [F::Bits],
    how: How,
}

impl<F: Format> Task for Row<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { gate, up, cotangent, dgate, dup, how } = self;
        let (skip, stale) = (how.is("tail_skipped"), how.is("stale_tail"));
        let mut block = [[0.0; LANES]; 3];
        for at in (0..gate.len()).step_by(LANES) {
            let there = (gate.len() - at).min(LANES);
            let partial = there < LANES;
            if partial && skip {
                return;
            }
            if !(partial && stale) {
                for (to, from) in block.iter_mut().zip([gate, up, cotangent]) {
                    to.iter_mut().zip(&from[at..]).for_each(|(to, &from)| *to = F::widen(from));
                }
            }
            for (to, from) in [&mut *dgate, &mut *dup].into_iter().zip(gradients(&block, how)) {
                to[at..].iter_mut().zip(from).for_each(|(to, from)| *to = F::narrow(from));
            }
        }
    }
}

/// Gradients by the gate and by up of a block of gates, of up and of cotangents.
#[inline(always)]
fn gradients([gate, up, cotangent]: &[[f32; LANES]; 3], how: How) -> [[f32; LANES]; 2] {
    let (mut gelu, mut slope) = ([0.0; LANES], [0.0; LANES]);
    let cube = if how.is("cube_forgotten") { 0.0 } else { CUBE };
    let times = if how.is("three_forgotten") { 1.0 } else { 3.0 };
    let (plain_tangent, no_curve) = (how.is("tangent_not_squared"), how.is("curve_forgotten"));
    for ((&x, gelu), slope) in gate.iter().zip(&mut gelu).zip(&mut slope) {
        let x = f64::from(x);
        let near = x.clamp(-FLAT, FLAT);
        let square = near * near;
        let e = exp((-2.0 * near * SLOPE * (1.0 + cube * square)).clamp(-LIMIT, LIMIT));
        let s = 1.0 / (1.0 + e);
        let rest = if plain_tangent { 1.0 } else { e * s };
        let curve = 2.0 * near * s * rest * SLOPE * (1.0 + times * cube * square);
        *slope = if no_curve { s } else { s + curve };
        *gelu = x * if x < -FLAT { 0.0 } else { s };
    }
    if how.is("needless_rounding") {
        gelu.iter_mut().for_each(|x| *x = f64::from(Bf16::round(*x as f32)));
    }
    if how.is("half_forgotten") {
        gelu.iter_mut().for_each(|x| *x *= 2.0);
    }
    if how.is("dup_of_derivative") {
        gelu = slope;
    }
    let (no_cotangent, no_up) = (how.is("cotangent_forgotten"), how.is("up_forgotten"));
    let cotangent = cotangent.map(|of| if no_cotangent { 1.0 } else { f64::from(of) });
    let up = up.map(|of| if no_up { 1.0 } else { f64::from(of) });
    [
        std::array::from_fn(|i| (cotangent[i] * up[i] * slope[i]) as f32),
        std::array::from_fn(|i| (cotangent[i] * gelu[i]) as f32),
    ]
}

/// The largest exponent, either sign, that [`exp`] takes.
const LIMIT: f64 = 700.0;

/// `exp(x)` to 1e-11 of itself: 2^n by the exponent, the rest by its series. Without a branch, so that a
/// loop of it vectorises.
#[inline(always)]
fn exp(x: f64) -> f64 {
    /// 1.5 * 2^52: the sum of it and a small number has the nearest whole number in its last bits.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    let shifted = x * std::f64::consts::LOG2_E + WHOLE;
    let r = x - (shifted - WHOLE) * std::f64::consts::LN_2;
    let mut y = 1.0 / 362_880.0;
    for inverse in [40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        y = y * r + 1.0 / inverse;
    }
    let exponent = shifted.to_bits().wrapping_sub(WHOLE.to_bits()).wrapping_add(1023);
    f64::from_bits(exponent << 52) * y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_near_that_of_the_library() {
        for i in -7000..=7000 {
            let x = f64::from(i) / 10.0;
            assert!((exp(x) / x.exp() - 1.0).abs() <= 1e-11, "{x}");
        }
    }
}
