//! A reference value together with how hard it is to compute.

use crate::tensor::Tensor64;

/// The value of an op and, element by element, its condition.
///
/// `condition[i]` is a first-order bound on how far `value[i]` moves when every intermediate of the
/// reference's formula is off by one relative unit: Σ|aᵢbᵢ| for dot products, Σ|aᵢ| for sums, the
/// sum of the magnitudes of the terms for composed formulas, and zero for ops that only move bits.
/// A check of an implementation whose intermediates have unit roundoff `u` and whose output has
/// `ulp` is therefore of the form `!(err <= ulp(value) * a + u * condition * b)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The value of the real function.
    pub value: Tensor64,
    /// Same shape as `value`; never negative, NaN only where the value is NaN.
    pub condition: Tensor64,
}

impl Answer {
    /// An op that is well conditioned everywhere: the condition is the magnitude of the value.
    pub fn relative(value: Tensor64) -> Self {
        let condition = value.map(f64::abs);
        Self { value, condition }
    }

    /// An op that moves bits and computes nothing: the condition is zero.
    pub fn exact(value: Tensor64) -> Self {
        let condition = value.map(|_| 0.0);
        Self { value, condition }
    }

    pub(crate) fn from_pairs(shape: Vec<usize>, pairs: Vec<(f64, f64)>) -> Self {
        let (value, condition) = pairs.into_iter().unzip();
        Self {
            value: Tensor64::trusted(shape.clone(), value),
            condition: Tensor64::trusted(shape, condition),
        }
    }
}
