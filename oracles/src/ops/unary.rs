//! Elementwise functions of one operand. Transcendentals come from the `libm` crate, so that the
//! reference has the same bits on every platform.

use super::{Gelu, Op, gelu};
use crate::answer::Answer;
use crate::tensor::Tensor64;

fn relative(x: &Tensor64, f: fn(f64) -> f64) -> Answer {
    Answer::relative(x.map(f))
}

/// The answer of any op of the family [`Unary`](super::Family::Unary), or `None` for another op.
pub fn unary(op: Op, x: &Tensor64) -> Option<Answer> {
    Some(match op {
        Op::Exp => exp(x),
        Op::Log => log(x),
        Op::Log1p => log1p(x),
        Op::Expm1 => expm1(x),
        Op::Sqrt => sqrt(x),
        Op::Rsqrt => rsqrt(x),
        Op::Sin => sin(x),
        Op::Cos => cos(x),
        Op::Tanh => tanh(x),
        Op::Sigmoid => sigmoid(x),
        Op::Erf => erf(x),
        Op::Silu => silu(x),
        Op::Gelu => gelu(x, Gelu::Exact),
        Op::GeluTanh => gelu(x, Gelu::Tanh),
        Op::GeluFast => gelu(x, Gelu::Fast),
        Op::Relu2 => relu2(x),
        Op::Softplus => softplus(x),
        _ => return None,
    })
}

/// eˣ.
pub fn exp(x: &Tensor64) -> Answer {
    relative(x, libm::exp)
}

/// Natural logarithm; NaN below zero, −inf at zero.
pub fn log(x: &Tensor64) -> Answer {
    relative(x, libm::log)
}

/// log(1 + x), accurate near zero.
pub fn log1p(x: &Tensor64) -> Answer {
    relative(x, libm::log1p)
}

/// eˣ − 1, accurate near zero.
pub fn expm1(x: &Tensor64) -> Answer {
    relative(x, libm::expm1)
}

/// Square root; NaN below zero.
pub fn sqrt(x: &Tensor64) -> Answer {
    relative(x, f64::sqrt)
}

/// 1/√x; inf at zero.
pub fn rsqrt(x: &Tensor64) -> Answer {
    relative(x, |v| 1.0 / v.sqrt())
}

/// Sine. The condition is `min(|x|, 1)`: reducing the range leaves an absolute error.
pub fn sin(x: &Tensor64) -> Answer {
    let condition = x.map(|v| if v.is_finite() { v.abs().min(1.0) } else { f64::NAN });
    Answer { value: x.map(libm::sin), condition }
}

/// Cosine. The condition is one: reducing the range leaves an absolute error.
pub fn cos(x: &Tensor64) -> Answer {
    let condition = x.map(|v| if v.is_finite() { 1.0 } else { f64::NAN });
    Answer { value: x.map(libm::cos), condition }
}

/// Hyperbolic tangent.
pub fn tanh(x: &Tensor64) -> Answer {
    relative(x, libm::tanh)
}

/// 1 / (1 + e⁻ˣ).
pub fn sigmoid(x: &Tensor64) -> Answer {
    relative(x, logistic)
}

/// The error function.
pub fn erf(x: &Tensor64) -> Answer {
    relative(x, libm::erf)
}

/// x · sigmoid(x), `mlx.nn.silu`; NaN at −inf, as that product gives.
pub fn silu(x: &Tensor64) -> Answer {
    relative(x, |v| v * logistic(v))
}

/// max(x, 0)², `mlx.nn.relu2`; NaN stays NaN.
pub fn relu2(x: &Tensor64) -> Answer {
    relative(x, |v| if v.is_nan() { v } else { v.max(0.0) * v.max(0.0) })
}

/// log(1 + eˣ) as logaddexp(x, 0), `mlx.nn.softplus`.
pub fn softplus(x: &Tensor64) -> Answer {
    relative(x, |v| if v.is_nan() { v } else { v.max(0.0) + libm::log1p(libm::exp(-v.abs())) })
}

/// The logistic function; the exponential never overflows and the lower tail keeps its relative
/// accuracy.
pub(crate) fn logistic(x: f64) -> f64 {
    let e = libm::exp(-x.abs());
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Family, OPS};

    #[test]
    fn every_unary_op_of_the_table_has_an_answer_and_no_other_has() {
        for info in OPS {
            let answer = unary(info.op, &Tensor64::vector([0.5, 2.0]));
            assert_eq!(answer.is_some(), info.family == Family::Unary, "{}", info.name);
        }
    }

    #[test]
    fn every_unary_op_keeps_nan_and_no_two_are_the_same_function() {
        let x = Tensor64::vector([f64::NAN, 0.3, 1.7]);
        let answers: Vec<Answer> = OPS.iter().filter_map(|info| unary(info.op, &x)).collect();
        for (i, answer) in answers.iter().enumerate() {
            assert!(answer.value.data()[0].is_nan(), "{}", OPS[i].name);
            assert!(
                answers[..i]
                    .iter()
                    .all(|other| other.value.data()[1..] != answer.value.data()[1..])
            );
        }
    }

    #[test]
    fn limits() {
        let ends = Tensor64::vector([f64::NEG_INFINITY, -1000.0, 0.0, 1000.0, f64::INFINITY]);
        assert_eq!(sigmoid(&ends).value.data(), [0.0, 0.0, 0.5, 1.0, 1.0]);
        assert_eq!(softplus(&ends).value.data(), [0.0, 0.0, 2.0_f64.ln(), 1000.0, f64::INFINITY]);
        assert_eq!(relu2(&ends).value.data(), [0.0, 0.0, 0.0, 1e6, f64::INFINITY]);
        let silu = silu(&ends);
        assert!(silu.value.data()[0].is_nan());
        assert_eq!(silu.value.data()[4], f64::INFINITY);
    }
}
