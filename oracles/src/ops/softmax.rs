//! Softmax over one axis.

use rayon::prelude::*;

use super::reduce::largest;
use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::{sum, sum_by};
use crate::tensor::{Tensor64, resolve_axis};

/// In what dtype the implementation under test works; the real function is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// In the operand's dtype: rounding x − max costs p·|x − max|.
    Plain,
    /// In float32 for half types: only the result rounds, so the condition is p.
    Precise,
}

/// eˣ/Σeˣ along `axis`. A row whose largest element is not finite is NaN throughout, as inf − inf
/// gives.
pub fn softmax(x: &Tensor64, axis: isize, precision: Precision) -> Result<Answer, OracleError> {
    let axis = resolve_axis("softmax", axis, x.ndim())?;
    let last = x.ndim() - 1;
    let rows = x.move_axis(axis, last);
    let width = rows.last_dim().max(1);
    let pairs = rows.data().par_chunks(width).flat_map_iter(|row| of_row(row, precision)).collect();
    let answer = Answer::from_pairs(rows.shape().to_vec(), pairs);
    Ok(Answer {
        value: answer.value.move_axis(last, axis),
        condition: answer.condition.move_axis(last, axis),
    })
}

fn of_row(row: &[f64], precision: Precision) -> Vec<(f64, f64)> {
    let top = largest(row);
    let weights: Vec<f64> = row.iter().map(|&x| libm::exp(x - top)).collect();
    let total = sum(&weights);
    let exponent = |x: f64| if x == f64::NEG_INFINITY { 0.0 } else { top - x };
    let mean_exponent = sum_by(row, |x| libm::exp(x - top) * exponent(x)) / total;
    let condition = |p: f64, x: f64| match precision {
        Precision::Plain => p * (1.0 + exponent(x) + mean_exponent),
        Precision::Precise => p,
    };
    row.iter().zip(weights).map(|(&x, w)| (w / total, condition(w / total, x))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_sum_to_one_and_shifts_do_not_matter(
            row in prop::collection::vec(-50.0_f64..50.0, 1..300),
            shift in -8_i32..8,
        ) {
            // Rounded to 2^-20 so that shifting by a small integer is exact.
            let row: Vec<f64> = row.iter().map(|v| (v * 1_048_576.0).round() / 1_048_576.0).collect();
            let plain = softmax(&Tensor64::vector(row.clone()), 0, Precision::Plain).unwrap().value;
            prop_assert!((sum(plain.data()) - 1.0).abs() <= 4e-16);
            let shifted: Vec<f64> = row.iter().map(|v| v + f64::from(shift)).collect();
            let moved = softmax(&Tensor64::vector(shifted), 0, Precision::Precise).unwrap().value;
            prop_assert_eq!(plain.data(), moved.data());
        }
    }

    #[test]
    fn infinities() {
        let value = |row: &[f64]| -> Vec<f64> {
            of_row(row, Precision::Plain).into_iter().map(|(v, _)| v).collect()
        };
        assert_eq!(value(&[f64::NEG_INFINITY, 3.0]), [0.0, 1.0]);
        assert!(value(&[f64::NEG_INFINITY; 2])[0].is_nan());
        assert!(value(&[f64::INFINITY, 0.0])[0].is_nan());
        assert!(value(&[f64::NAN, 0.0])[1].is_nan());
    }

    #[test]
    fn another_axis_is_the_transposed_row() {
        let x = Tensor64::new([2, 2], vec![0.0, 1.0, 2.0_f64.ln(), 5.0]).unwrap();
        let found = softmax(&x, 0, Precision::Plain).unwrap().value;
        assert!((found.data()[2] - 2.0 / 3.0).abs() <= 2e-16);
        assert!((found.data()[0] + found.data()[2] - 1.0).abs() <= 2e-16);
    }
}
