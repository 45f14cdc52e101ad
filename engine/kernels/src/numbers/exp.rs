//! The exponential function for kernels that claim an envelope.

use crate::lanes::{F32s, Mask, Simd, U32s};

/// Below this `exp` is less than the smallest normal number.
const LOWEST: f32 = -87.336_54;
/// Above this `exp` is infinite.
const HIGHEST: f32 = 88.722_84;
/// The high bits of ln 2: its product with an exponent is exact.
const LN2_HIGH: f32 = 355.0 / 512.0;
/// What is missing to ln 2.
const LN2_LOW: f32 = -2.121_944_4e-4;
/// `(exp(r) - 1 - r) / r^2` on ±ln 2 / 2, highest power first (Cephes, `expf`).
const POLYNOMIAL: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5];

/// `exp(x)`, within 2 ULP; 0 where that would be less than the smallest normal number, NaN of NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::F) -> S::F {
    // The second operand wins where one is NaN.
    let inside = simd.splat(HIGHEST).min(simd.splat(LOWEST).max(x));
    let exponent = (inside * simd.splat(std::f32::consts::LOG2_E)).round_to_int();
    let whole = -exponent.to_f32();
    let rest = whole.mul_add(simd.splat(LN2_HIGH), inside);
    let rest = whole.mul_add(simd.splat(LN2_LOW), rest);
    let [first, more @ ..] = POLYNOMIAL;
    let series =
        more.into_iter().fold(simd.splat(first), |sum, next| sum.mul_add(rest, simd.splat(next)));
    let fraction = series.mul_add(rest * rest, rest) + simd.splat(1.0);
    // The power goes straight into the exponent: both bounds leave the sum within those of normal numbers.
    let value = (fraction.bits() + (exponent << 23)).floats();
    let value = x.lt(simd.splat(LOWEST)).select(simd.splat(0.0), value);
    simd.splat(HIGHEST).lt(x).select(simd.splat(f32::INFINITY), value)
}
