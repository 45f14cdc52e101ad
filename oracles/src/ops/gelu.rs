//! The Gaussian error linear unit and its two approximations.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, FRAC_2_SQRT_PI};

use super::unary::logistic;
use crate::answer::Answer;
use crate::tensor::Tensor64;

/// Which of the three functions called gelu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// x · Φ(x) (Hendrycks and Gimpel, 2016; `mlx.nn.gelu`).
    Exact,
    /// ½x(1 + tanh(√(2/π)(x + 0.044715x³))) (`mlx.nn.gelu_approx`).
    Tanh,
    /// x · sigmoid(1.702x) (`mlx.nn.gelu_fast_approx`).
    Fast,
}

/// Elementwise gelu; all three are NaN at −inf, as the reference's products give.
///
/// The condition sums the magnitudes of the reference's terms, which cancel in the lower tail.
pub fn gelu(x: &Tensor64, kind: Gelu) -> Answer {
    let f = match kind {
        Gelu::Exact => exact,
        Gelu::Tanh => tanh,
        Gelu::Fast => fast,
    };
    Answer::from_pairs(x.shape().to_vec(), x.data().iter().map(|&v| f(v)).collect())
}

/// 1/√2 less its float64 neighbour [`FRAC_1_SQRT_2`].
const FRAC_1_SQRT_2_REST: f64 = -4.833_646_656_726_457e-17;

/// Φ(x) = erfc(−x/√2)/2 keeps the tail that 1 + erf(x/√2) cancels; the argument's rounding is put
/// back to first order, since the tail is steep there.
fn exact(x: f64) -> (f64, f64) {
    let z = -x * FRAC_1_SQRT_2;
    let rest = f64::mul_add(-x, FRAC_1_SQRT_2, -z) - x * FRAC_1_SQRT_2_REST;
    let steep = libm::exp(-z * z) * rest;
    let correction = if steep.is_finite() { FRAC_2_SQRT_PI * steep } else { 0.0 };
    let value = 0.5 * x * (libm::erfc(z) - correction);
    (value, 0.5 * x.abs() * (1.0 + libm::erf(x.abs() * FRAC_1_SQRT_2)))
}

/// ½(1 + tanh u) = sigmoid(2u) keeps the tail.
fn tanh(x: f64) -> (f64, f64) {
    let u = FRAC_2_PI.sqrt() * (x + 0.044_715 * x * x * x);
    let slope = 2.0 * logistic(2.0 * u) * logistic(-2.0 * u);
    let argument = if slope == 0.0 { 0.0 } else { (x * u * slope).abs() };
    (x * logistic(2.0 * u), 0.5 * x.abs() * (1.0 + libm::tanh(u).abs()) + argument)
}

fn fast(x: f64) -> (f64, f64) {
    let u = 1.702 * x;
    let value = x * logistic(u);
    let argument = if value == 0.0 { 0.0 } else { (value * u * logistic(-u)).abs() };
    (value, value.abs() + argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_tails_keep_their_relative_accuracy() {
        // mpmath, 50 digits: x*ncdf(x) at x = -10
        let answer = gelu(&Tensor64::scalar(-10.0), Gelu::Exact);
        let wanted = -7.619_853_024_160_526e-23;
        assert!(((answer.value.data()[0] - wanted) / wanted).abs() <= 1e-15);
    }

    #[test]
    fn the_three_differ_by_their_known_gaps() {
        let x = Tensor64::vector((-600..600).map(|i| f64::from(i) / 100.0).collect::<Vec<_>>());
        let gap = |a: Gelu, b: Gelu| {
            let (a, b) = (gelu(&x, a).value, gelu(&x, b).value);
            a.data().iter().zip(b.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        // Known maximal errors of the two approximations: 4.8e-4 and 2.03e-2.
        let (tanh, fast) = (gap(Gelu::Exact, Gelu::Tanh), gap(Gelu::Exact, Gelu::Fast));
        assert!(tanh > 4e-4 && tanh < 5e-4, "{tanh}");
        assert!(fast > 2e-2 && fast < 2.1e-2, "{fast}");
    }
}
