//! log Σ eˣ.

use super::reduce::{Axes, largest, reduce};
use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::sum_by;
use crate::tensor::Tensor64;

/// log Σ eˣ over `axes`, shifted by the largest element. −inf where all elements are, +inf where
/// any is, NaN where any is.
pub fn logsumexp(x: &Tensor64, axes: Axes, keep_dims: bool) -> Result<Answer, OracleError> {
    reduce("logsumexp", x, axes, keep_dims, of_row)
}

/// Value and condition of one row: |max| + |log Σ| and the rounding of each exponent, weighted by
/// its share.
pub(crate) fn of_row(row: &[f64]) -> (f64, f64) {
    let top = largest(row);
    if !top.is_finite() {
        return (top, top.abs());
    }
    let shifted: Vec<f64> = row.iter().map(|x| x - top).collect();
    let (log, condition) = of_shifted(&shifted);
    (top + log, top.abs() + condition)
}

/// log Σ eˣ of a row whose largest element is zero, and its condition.
pub(crate) fn of_shifted(row: &[f64]) -> (f64, f64) {
    // The largest term is one; the others alone keep their digits when they are few and small.
    let top = row.iter().position(|&x| x == 0.0).unwrap_or(row.len());
    let rest: f64 = [&row[..top], row.get(top + 1..).unwrap_or(&[])]
        .map(|part| sum_by(part, libm::exp))
        .iter()
        .sum();
    let log = if top == row.len() { libm::log(rest) } else { libm::log1p(rest) };
    let weigh = |x: f64| if x == f64::NEG_INFINITY { 0.0 } else { -x * libm::exp(x) };
    (log, log.abs() + sum_by(row, weigh) / (1.0 + rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_elements_add_the_log_of_their_number() {
        for shift in [-1e4, 0.0, 1e4] {
            let x = Tensor64::full([1000], shift);
            let found = logsumexp(&x, Axes::All, false).unwrap().value.data()[0];
            assert!((found - (shift + 1000.0_f64.ln())).abs() <= 1e-11);
        }
    }

    #[test]
    fn infinities() {
        let value = |row: &[f64]| of_row(row).0;
        assert_eq!(value(&[f64::NEG_INFINITY; 2]), f64::NEG_INFINITY);
        assert_eq!(value(&[f64::INFINITY, 1.0]), f64::INFINITY);
        assert_eq!(value(&[f64::NEG_INFINITY, 1.0]), 1.0);
        assert!(value(&[f64::NAN, 1.0]).is_nan());
        assert!(of_row(&[f64::NEG_INFINITY, 1.0]).1.is_finite());
    }
}
