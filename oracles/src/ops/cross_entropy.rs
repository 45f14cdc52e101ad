//! Cross entropy of class indices (`mlx.nn.losses.cross_entropy`).

use super::logsumexp::of_shifted;
use super::reduce::largest;
use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::sum;
use crate::tensor::{IntTensor, Tensor64, resolve_index};

/// Parameters of [`cross_entropy`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossEntropy {
    /// Share of the target spread evenly over all classes; in `[0, 1)`.
    pub label_smoothing: f64,
    /// A target whose loss is zero.
    pub ignore_index: Option<i64>,
}

/// Loss in nats of each row of `logits` (`[.., classes]`) for `targets` (`[..]`):
/// log Σeˣ − (1 − s)·`x_target` − s·mean(x), on logits less their largest.
pub fn cross_entropy(
    logits: &Tensor64,
    targets: &IntTensor,
    loss: CrossEntropy,
) -> Result<Answer, OracleError> {
    let op = "cross_entropy";
    if !(0.0..1.0).contains(&loss.label_smoothing) {
        return Err(OracleError::parameter(op, loss.label_smoothing, "smoothing in [0, 1)"));
    }
    if logits.ndim() == 0 || targets.shape() != &logits.shape()[..logits.ndim() - 1] {
        return Err(OracleError::shape(
            op,
            targets.shape(),
            format!("that of {:?} less its last axis", logits.shape()),
        ));
    }
    let row = |(row, &target): (&[f64], &i64)| {
        if loss.ignore_index == Some(target) {
            return Ok((0.0, 0.0));
        }
        Ok(of_row(row, resolve_index(op, target, row.len())?, loss.label_smoothing))
    };
    let pairs = logits.rows().zip(targets.data()).map(row).collect::<Result<_, OracleError>>()?;
    Ok(Answer::from_pairs(targets.shape().to_vec(), pairs))
}

fn of_row(row: &[f64], target: usize, smoothing: f64) -> (f64, f64) {
    let top = largest(row);
    let shifted: Vec<f64> = row.iter().map(|x| x - top).collect();
    let (log, log_condition) = of_shifted(&shifted);
    let mean = if smoothing == 0.0 { 0.0 } else { smoothing * sum(&shifted) / row.len() as f64 };
    let score = (1.0 - smoothing) * shifted[target];
    (log - score - mean, log_condition + score.abs() + mean.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(row: &[f64], target: i64, label_smoothing: f64) -> f64 {
        let logits = Tensor64::new([1, row.len()], row.to_vec()).unwrap();
        let loss = CrossEntropy { label_smoothing, ignore_index: Some(-100) };
        cross_entropy(&logits, &IntTensor::vector([target]), loss).unwrap().value.data()[0]
    }

    #[test]
    fn even_logits_cost_the_log_of_the_classes_however_smoothed() {
        for smoothing in [0.0, 0.1, 0.9] {
            assert!((loss(&vec![7.0; 50_000], 3, smoothing) - 50_000.0_f64.ln()).abs() <= 1e-14);
        }
    }

    #[test]
    fn two_classes_are_softplus() {
        assert!((loss(&[2.0, -1.0], 0, 0.0) - (-3.0_f64).exp().ln_1p()).abs() <= 1e-16);
        assert!((loss(&[2.0, -1.0], -1, 0.0) - (3.0 + (-3.0_f64).exp().ln_1p())).abs() <= 1e-15);
        let smoothed = 0.9 * loss(&[2.0, -1.0], 0, 0.0) + 0.1 * (loss(&[2.0, -1.0], 0, 0.0) + 1.5);
        assert!((loss(&[2.0, -1.0], 0, 0.1) - smoothed).abs() <= 1e-15);
    }

    #[test]
    fn ignored_targets_cost_nothing_and_wrong_ones_are_refused() {
        assert_eq!(loss(&[2.0, -1.0], -100, 0.0), 0.0);
        let logits = Tensor64::full([1, 2], 0.0);
        let plain = CrossEntropy::default();
        assert!(cross_entropy(&logits, &IntTensor::vector([2]), plain).is_err());
        assert!(cross_entropy(&logits, &IntTensor::vector([0, 0]), plain).is_err());
        let all = CrossEntropy { label_smoothing: 1.0, ..plain };
        assert!(cross_entropy(&logits, &IntTensor::vector([0]), all).is_err());
    }
}
