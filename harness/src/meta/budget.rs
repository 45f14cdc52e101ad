//! How far two ways may part where MLX sums in another order.

use mlx_parity_tensor::{Dtype, HostTensor};

use crate::compare::{
    ToleranceReport, Zeros, check_tolerance,
    error::{LengthMismatch, error_stats},
};

/// The error of one way to the logits against the float64 forward, as the budget of another: evidence
/// E2 of the gate (design, section 5) with the first way as baseline b, the float64 forward as o and
/// the other way as c. `max(c,o) <= 2 max(b,o) + floor`, also row by row, and
/// `rmse(c,o) <= m rmse(b,o) + floor`; m is 2 for f32 and 3 for the half types, the floor 2 ulp of
/// max|o|.
#[derive(Debug)]
pub struct Budget<'a> {
    truth: &'a [f64],
    base: &'a HostTensor,
}

/// Whether a way kept the budget.
#[derive(Debug)]
pub struct Kept {
    /// Its greatest error, in ulp of max|o|, beside the bound on it.
    pub worst: ToleranceReport,
    /// What was broken, in words; empty where all was kept.
    pub broken: Vec<String>,
}

/// Of max|o|, in ulp.
const FLOOR: f64 = 2.0;

impl<'a> Budget<'a> {
    /// The budget that logits `base` `[positions, vocab]` leave, with their float64 values.
    pub fn new(base: &'a HostTensor, truth: &'a [f64]) -> Self {
        Self { truth, base }
    }

    /// Holds other logits of the same shape to it.
    ///
    /// # Errors
    /// [`LengthMismatch`] where the shapes differ.
    pub fn check(&self, got: &HostTensor) -> Result<Kept, LengthMismatch> {
        let size = self.truth.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let all = 0..self.truth.len();
        let worst = self.bound(got, all, size)?;
        let mut broken = Vec::new();
        if !worst.held {
            broken.push("the greatest error is over its bound".to_owned());
        }
        let vocab = self.base.shape().last().copied().unwrap_or(1).max(1);
        for row in 0..self.truth.len() / vocab {
            let report = self.bound(got, row * vocab..(row + 1) * vocab, size)?;
            if !report.held {
                broken.push(format!("position {row}: {report}"));
                break;
            }
        }
        let rmse =
            |logits: &HostTensor| error_stats(&logits.view(), self.truth).map(|stats| stats.rmse);
        let (found, base) = (rmse(got)?, rmse(self.base)?);
        let floor = FLOOR * crate::compare::ulp::unit_in_last_place(got.dtype(), size);
        let bound = factor(got.dtype()) * base + floor;
        let within = found <= bound;
        if !within {
            broken.push(format!("rmse against float64 {found:.3e}, bound {bound:.3e}"));
        }
        Ok(Kept { worst, broken })
    }

    /// The greatest error of some elements; all units are ulp of `size`.
    fn bound(
        &self,
        got: &HostTensor,
        elements: std::ops::Range<usize>,
        size: f64,
    ) -> Result<ToleranceReport, LengthMismatch> {
        let truth = &self.truth[elements.clone()];
        let condition = vec![size; truth.len()];
        let check = |logits: &HostTensor, tolerance| {
            let part = flat(logits, elements.clone());
            check_tolerance(&part.view(), truth, &condition, tolerance, Zeros::Unsigned)
        };
        let base = check(self.base, f64::INFINITY)?;
        // Cut, never raised, to what a table can show.
        check(got, ((2.0 * base.minimum + FLOOR) * 1e3).floor() / 1e3)
    }
}

const fn factor(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 | Dtype::F64 => 2.0,
        _ => 3.0,
    }
}

/// Elements of a tensor as a tensor of one axis; fewer where it has not as many. All of them stay as
/// they stand, so that coordinates name the position.
fn flat(tensor: &HostTensor, elements: std::ops::Range<usize>) -> HostTensor {
    if elements == (0..tensor.len()) {
        return tensor.clone();
    }
    let size = tensor.dtype().size();
    let stop = elements.end.min(tensor.len());
    let start = elements.start.min(stop);
    let bytes = tensor.bytes()[start * size..stop * size].to_vec();
    HostTensor::new(tensor.dtype(), [stop - start], bytes)
        .unwrap_or_else(|error| unreachable!("as many bytes as elements: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUTH: [f64; 4] = [1.0, -2.0, 3.0, 0.5];

    fn logits(values: [f32; 4]) -> HostTensor {
        HostTensor::from_f32([2, 2], &values).unwrap()
    }

    fn check(got: [f32; 4]) -> Kept {
        let base = logits([1.0, -2.0, 3.00001, 0.5]);
        Budget::new(&base, &TRUTH).check(&logits(got)).unwrap()
    }

    #[test]
    fn as_wrong_as_the_baseline_is_within() {
        assert!(check([1.0, -2.0, 3.00001, 0.5]).broken.is_empty());
        assert!(check([1.0, -2.0, 2.99999, 0.5]).broken.is_empty());
    }

    #[test]
    fn more_than_twice_as_wrong_is_not() {
        let kept = check([1.0, -2.0, 3.0001, 0.5]);
        assert!(!kept.worst.held && !kept.broken.is_empty());
        assert!(!check([f32::NAN, -2.0, 3.0, 0.5]).broken.is_empty());
    }

    #[test]
    fn each_position_is_held_to_its_own() {
        // Nothing was wrong at position 0 of the baseline, and the whole is within its bound.
        let kept = check([1.00001, -2.0, 3.0, 0.5]);
        assert!(kept.worst.held);
        assert!(kept.broken.iter().any(|what| what.starts_with("position 0")), "{:?}", kept.broken);
    }

    #[test]
    fn another_shape_is_an_error() {
        let base = logits([1.0; 4]);
        let short = HostTensor::from_f32([1, 2], &[1.0, 1.0]).unwrap();
        assert!(Budget::new(&base, &TRUTH).check(&short).is_err());
    }
}
