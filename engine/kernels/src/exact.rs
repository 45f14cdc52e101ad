//! Functions with the bits of MLX's CPU backend as its x86-64 wheels compute them: one element at a time
//! in f32 with fused multiply-adds (`mlx/backend/cpu/simd/math.h` and `unary_ops.h`, where vectors have
//! one lane). Functions without a branch, so that loops over them vectorise.
//!
//! [`tanh`] and [`power`] are those of the process's own C library there, and so they are here.

#![expect(clippy::excessive_precision, reason = "constants with the digits of their sources")]

use crate::numbers::Format;

/// 1.5 * 2^23: the sum of it and a small whole number has that number in its last bits.
const WHOLE: f32 = 12_582_912.0;

/// `mx.exp` in f32: 2^n by the exponent, the rest by the polynomial of Cephes. 0 below -88 and infinite
/// above 88.
#[expect(clippy::approx_constant, reason = "MLX's, of seven digits")]
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let scaled = x * 1.442_695_f32;
    // MLX rounds by `floor(scaled + 0.5)` in float64, where that sum is exact.
    let below = scaled.floor();
    let whole = if scaled - below >= 0.5 { below + 1.0 } else { below };
    let rest = scaled - whole;
    let mut y = 1.535_336_188_319_500e-4_f32;
    y = y.mul_add(rest, 1.339_887_440_266_574e-3);
    y = y.mul_add(rest, 9.618_437_357_674_640e-3);
    y = y.mul_add(rest, 5.550_332_471_162_809e-2);
    y = y.mul_add(rest, 2.402_264_791_363_012e-1);
    y = y.mul_add(rest, 6.931_472_028_550_421e-1);
    y = y.mul_add(rest, 1.0);
    let exponent = (whole + WHOLE).to_bits().wrapping_sub(WHOLE.to_bits()).wrapping_add(127);
    let y = f32::from_bits(exponent << 23) * y;
    let y = if x.is_nan() { x } else { y };
    let y = if x > 88.0 { f32::INFINITY } else { y };
    if x < -88.0 { 0.0 } else { y }
}

/// `mx.sigmoid` of a value of the format, rounded to it; the exponential is rounded on the way.
#[inline(always)]
pub fn sigmoid<F: Format>(x: f32) -> f32 {
    let small = 1.0 / (1.0 + F::round(exp(x.abs())));
    F::round(if x < 0.0 { small } else { 1.0 - small })
}

/// `nn.silu` of a value of the format, rounded to it: `x * sigmoid(x)`.
#[inline(always)]
pub fn silu<F: Format>(x: f32) -> f32 {
    F::round(x * sigmoid::<F>(x))
}

/// `mx.erf` of a value of the format, rounded to it: formula 7.1.26 of Abramowitz and Stegun.
#[inline(always)]
pub fn erf<F: Format>(x: f32) -> f32 {
    let t = 1.0 / 0.327_591_1_f32.mul_add(x.abs(), 1.0);
    let mut y = 1.061_405_429_f32.mul_add(t, -1.453_152_027);
    y = y.mul_add(t, 1.421_413_741);
    y = y.mul_add(t, -0.284_496_736);
    y = y.mul_add(t, 0.254_829_592);
    let tail = -exp(-x * x);
    let y = F::round((tail * t).mul_add(y, 1.0));
    if x > 0.0 { y } else { -y }
}

/// `mx.rsqrt` in f32.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// `mx.tanh` of a value of the format, rounded to it: `tanhf` of the C library.
#[inline(always)]
pub fn tanh<F: Format>(x: f32) -> f32 {
    F::round(x.tanh())
}

/// `mx.power` of values of the format, rounded to it: `powf` of the C library.
#[inline(always)]
pub fn power<F: Format>(x: f32, exponent: f32) -> f32 {
    F::round(x.powf(exponent))
}

/// Above this, arguments of sines go to the C library.
const SINE_LIMIT: f32 = 8_388_608.0;

/// `mx.sin` in f32.
pub fn sin(x: f32) -> f32 {
    if x.abs() > SINE_LIMIT {
        return x.sin();
    }
    let Octant { index, sine, cosine } = Octant::of(x);
    let y = if index & 2 == 0 { sine } else { cosine };
    if (x < 0.0) ^ (index & 4 != 0) { -y } else { y }
}

/// `mx.cos` in f32.
pub fn cos(x: f32) -> f32 {
    if x.abs() > SINE_LIMIT {
        return x.cos();
    }
    let Octant { index, sine, cosine } = Octant::of(x);
    let y = if index & 2 == 0 { cosine } else { sine };
    if index.wrapping_sub(2) & 4 == 0 { -y } else { y }
}

/// An angle reduced to an eighth of a turn.
struct Octant {
    /// The even number of eighths taken off.
    index: u32,
    /// Of the rest.
    sine: f32,
    /// Of the rest.
    cosine: f32,
}

impl Octant {
    /// The reduction in three parts of pi / 4, and the polynomials, of Cephes.
    fn of(x: f32) -> Self {
        let x = x.abs();
        let index = ((x * 1.273_239_544_735_16_f32) as u32).wrapping_add(1) & !1;
        let y = index as f32;
        let x = y.mul_add(-0.785_156_25, x);
        let x = y.mul_add(-2.418_756_484_985_351_562_5e-4, x);
        let x = y.mul_add(-3.774_894_977_445_941_08e-8, x);
        let z = x * x;
        let cosine = z
            .mul_add(2.443_315_711_809_948e-5, -1.388_731_625_493_765e-3)
            .mul_add(z, 4.166_664_568_298_827e-2);
        let cosine = z.mul_add(-0.5, cosine * z * z) + 1.0;
        let sine =
            z.mul_add(-1.951_529_589_1e-4, 8.332_160_873_6e-3).mul_add(z, -1.666_665_461_1e-1);
        let sine = x.mul_add(sine * z, x);
        Self { index, sine, cosine }
    }
}

/// `nn.gelu_approx` of a value of the format: `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`,
/// each step rounded as a composed op rounds it. The constants are those that `mx.compile` prints with 7
/// digits, which round to the same f32 as the numbers themselves.
#[inline(always)]
pub fn gelu_approx<F: Format>(x: f32) -> f32 {
    let cube = F::round(F::round(0.044_715) * power::<F>(x, 3.0));
    let slope = F::round(0.797_884_6);
    let bend = tanh::<F>(F::round(slope * F::round(x + cube)));
    // Which of two operands that are NaN a product hands on is up to the compiler.
    let y = F::round(F::round(0.5 * x) * F::round(1.0 + bend));
    if x.is_nan() { x } else { y }
}
