//! Running results along an axis.

use super::reduce::greater;
use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::Compensated;
use crate::tensor::{Tensor64, resolve_axis};

/// How a scan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Axis; negative counts from the end.
    pub axis: isize,
    /// From the end to the start.
    pub reverse: bool,
    /// Whether each result includes its own element; the first exclusive result is the op's
    /// identity.
    pub inclusive: bool,
}

impl Default for Scan {
    fn default() -> Self {
        Self { axis: -1, reverse: false, inclusive: true }
    }
}

/// Running sum; the condition is the running Σ|x|.
pub fn cumsum(x: &Tensor64, scan: Scan) -> Result<Answer, OracleError> {
    let start = (Compensated::default(), 0.0);
    let step = |state: &mut (Compensated, f64), v: f64| {
        state.0.add(v);
        state.1 += v.abs();
    };
    run("cumsum", x, scan, start, step, |state| (state.0.value(), state.1))
}

/// Running maximum; NaN from the first NaN on.
pub fn cummax(x: &Tensor64, scan: Scan) -> Result<Answer, OracleError> {
    let step = |state: &mut f64, v: f64| *state = greater(*state, v);
    run("cummax", x, scan, f64::NEG_INFINITY, step, |state| (*state, 0.0))
}

fn run<S: Copy>(
    op: &'static str,
    x: &Tensor64,
    scan: Scan,
    start: S,
    step: impl Fn(&mut S, f64),
    read: impl Fn(&S) -> (f64, f64),
) -> Result<Answer, OracleError> {
    let axis = resolve_axis(op, scan.axis, x.ndim())?;
    let last = x.ndim() - 1;
    let rows = x.move_axis(axis, last);
    let mut pairs = vec![(0.0, 0.0); x.len()];
    let width = rows.last_dim().max(1);
    for (row, out) in rows.rows().zip(pairs.chunks_mut(width)) {
        let mut state = start;
        for i in 0..width {
            let at = if scan.reverse { width - 1 - i } else { i };
            let before = read(&state);
            step(&mut state, row[at]);
            out[at] = if scan.inclusive { read(&state) } else { before };
        }
    }
    let answer = Answer::from_pairs(rows.shape().to_vec(), pairs);
    Ok(Answer {
        value: answer.value.move_axis(last, axis),
        condition: answer.condition.move_axis(last, axis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_and_ends() {
        let x = Tensor64::new([2, 3], vec![1.0, 2.0, 3.0, 10.0, -20.0, 30.0]).unwrap();
        let sums = |axis, reverse, inclusive| {
            cumsum(&x, Scan { axis, reverse, inclusive }).unwrap().value.into_data()
        };
        assert_eq!(sums(1, false, true), [1.0, 3.0, 6.0, 10.0, -10.0, 20.0]);
        assert_eq!(sums(1, true, true), [6.0, 5.0, 3.0, 20.0, 10.0, 30.0]);
        assert_eq!(sums(1, false, false), [0.0, 1.0, 3.0, 0.0, 10.0, -10.0]);
        assert_eq!(sums(-2, false, true), [1.0, 2.0, 3.0, 11.0, -18.0, 33.0]);
        let condition = cumsum(&x, Scan::default()).unwrap().condition;
        assert_eq!(condition.data(), [1.0, 3.0, 6.0, 10.0, 30.0, 60.0]);
    }

    #[test]
    fn a_running_maximum_stays_nan() {
        let x = Tensor64::vector([1.0, f64::NAN, 5.0]);
        let found = cummax(&x, Scan::default()).unwrap().value;
        assert_eq!(found.data()[0], 1.0);
        assert!(found.data()[1..].iter().all(|v| v.is_nan()));
        let back = cummax(&x, Scan { reverse: true, ..Scan::default() }).unwrap().value;
        assert_eq!(back.data()[2], 5.0);
        assert!(back.data()[0].is_nan());
    }
}
