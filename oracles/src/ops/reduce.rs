//! Reductions over axes.

use rayon::prelude::*;

use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::{sum as total, sum_by};
use crate::tensor::{Tensor64, resolve_axis};

/// Which axes are reduced.
#[derive(Clone, Copy, Debug)]
pub enum Axes<'a> {
    /// Every axis.
    All,
    /// These; negative ones count from the end.
    Of(&'a [isize]),
}

/// Applies `f` to the elements reduced into each result; it gives value and condition.
pub(crate) fn reduce(
    op: &'static str,
    x: &Tensor64,
    axes: Axes,
    keep_dims: bool,
    f: impl Fn(&[f64]) -> (f64, f64) + Sync,
) -> Result<Answer, OracleError> {
    let reduced = resolve(op, axes, x.ndim())?;
    let kept: Vec<usize> = (0..x.ndim()).filter(|axis| !reduced.contains(axis)).collect();
    let order: Vec<usize> = kept.iter().chain(&reduced).copied().collect();
    let lane: usize = reduced.iter().map(|&axis| x.shape()[axis]).product();
    let outer: usize = kept.iter().map(|&axis| x.shape()[axis]).product();
    let rows = x.permute(&order);
    let pairs = (0..outer).into_par_iter().map(|i| f(&rows.data()[i * lane..][..lane])).collect();
    let shape = if keep_dims {
        let keep = |axis| if reduced.contains(&axis) { 1 } else { x.shape()[axis] };
        (0..x.ndim()).map(keep).collect()
    } else {
        kept.iter().map(|&axis| x.shape()[axis]).collect()
    };
    Ok(Answer::from_pairs(shape, pairs))
}

fn resolve(op: &'static str, axes: Axes, ndim: usize) -> Result<Vec<usize>, OracleError> {
    let Axes::Of(axes) = axes else { return Ok((0..ndim).collect()) };
    let mut found =
        axes.iter().map(|&a| resolve_axis(op, a, ndim)).collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable();
    found.dedup();
    if found.len() == axes.len() {
        return Ok(found);
    }
    Err(OracleError::parameter(op, format!("axes {axes:?}"), "axes that differ"))
}

/// Σx; the condition is Σ|x|. Nothing summed is zero.
pub fn sum(x: &Tensor64, axes: Axes, keep_dims: bool) -> Result<Answer, OracleError> {
    reduce("sum", x, axes, keep_dims, |row| (total(row), sum_by(row, f64::abs)))
}

/// Σx/n; the condition is Σ|x|/n. The mean of nothing is NaN.
pub fn mean(x: &Tensor64, axes: Axes, keep_dims: bool) -> Result<Answer, OracleError> {
    reduce("mean", x, axes, keep_dims, |row| {
        let n = row.len() as f64;
        (total(row) / n, sum_by(row, f64::abs) / n)
    })
}

/// Σ(x − mean)²/(n − ddof), in two passes. NaN where n ≤ ddof leaves 0/0, inf past it, as `numpy`.
///
/// The condition adds what rounding the mean and each difference costs: 2Σ|x − mean|(|x| +
/// mean|x|)/(n − ddof).
pub fn var(x: &Tensor64, axes: Axes, keep_dims: bool, ddof: usize) -> Result<Answer, OracleError> {
    reduce("var", x, axes, keep_dims, |row| {
        let divisor = row.len().saturating_sub(ddof) as f64;
        let moments = Moments::of(row);
        (moments.squares / divisor, (moments.squares + moments.cancellation) / divisor)
    })
}

/// Mean and sum of squared differences of a row, with the condition of the latter.
pub(crate) struct Moments {
    pub mean: f64,
    pub mean_magnitude: f64,
    pub squares: f64,
    /// 2Σ|x − mean|(|x| + mean|x|): first-order effect of rounding the mean and the differences.
    pub cancellation: f64,
}

impl Moments {
    pub fn of(row: &[f64]) -> Self {
        let n = row.len() as f64;
        let mean = total(row) / n;
        let mean_magnitude = sum_by(row, f64::abs) / n;
        Self {
            mean,
            mean_magnitude,
            squares: sum_by(row, |x| (x - mean) * (x - mean)),
            cancellation: 2.0 * sum_by(row, |x| (x - mean).abs() * (x.abs() + mean_magnitude)),
        }
    }
}

/// Largest element; NaN where any is NaN, −inf of nothing.
pub fn max(x: &Tensor64, axes: Axes, keep_dims: bool) -> Result<Answer, OracleError> {
    reduce("max", x, axes, keep_dims, |row| (largest(row), 0.0))
}

/// Smallest element; NaN where any is NaN, +inf of nothing.
pub fn min(x: &Tensor64, axes: Axes, keep_dims: bool) -> Result<Answer, OracleError> {
    reduce("min", x, axes, keep_dims, |row| (row.iter().copied().fold(f64::INFINITY, lesser), 0.0))
}

/// The larger of two; NaN where either is NaN.
pub(crate) fn greater(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn lesser(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

/// Largest of a row; NaN where any is NaN, −inf of nothing.
pub(crate) fn largest(row: &[f64]) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, greater)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting() -> Tensor64 {
        Tensor64::new([2, 3, 2], (0..12).map(f64::from).collect()).unwrap()
    }

    #[test]
    fn axes_are_reduced_and_kept() {
        let x = counting();
        let found = sum(&x, Axes::Of(&[-2]), false).unwrap();
        assert_eq!(found.value.shape(), [2, 2]);
        assert_eq!(found.value.data(), [6.0, 9.0, 24.0, 27.0]);
        let found = max(&x, Axes::Of(&[2, 0]), true).unwrap();
        assert_eq!(found.value.shape(), [1, 3, 1]);
        assert_eq!(found.value.data(), [7.0, 9.0, 11.0]);
        let found = mean(&x, Axes::All, false).unwrap();
        assert_eq!((found.value.ndim(), found.value.data()), (0, &[5.5][..]));
        assert!(sum(&x, Axes::Of(&[3]), false).is_err());
        assert!(sum(&x, Axes::Of(&[1, -2]), false).is_err());
    }

    #[test]
    fn variance_of_offset_rows_keeps_its_digits() {
        let offset: Vec<f64> = (0..1000).map(|i| 1e6 + f64::from(i)).collect();
        // The first n integers: (n² − 1)/12, and n(n + 1)/12 with ddof 1.
        let x = Tensor64::vector(offset);
        assert_eq!(var(&x, Axes::All, false, 0).unwrap().value.data(), [83_333.25]);
        let sample = var(&x, Axes::All, false, 1).unwrap();
        assert!((sample.value.data()[0] - 1000.0 * 1001.0 / 12.0).abs() <= 1e-10);
        assert!(
            sample.condition.data()[0] > 1e3 * sample.value.data()[0],
            "offset rows are ill conditioned"
        );
    }

    #[test]
    fn nan_wins_wherever_it_stands() {
        for at in 0..4 {
            let mut row = vec![1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY];
            row[at] = f64::NAN;
            let x = Tensor64::vector(row);
            assert!(max(&x, Axes::All, false).unwrap().value.data()[0].is_nan());
            assert!(min(&x, Axes::All, false).unwrap().value.data()[0].is_nan());
        }
    }

    #[test]
    fn nothing_reduced() {
        let none = Tensor64::new([2, 0], vec![]).unwrap();
        assert_eq!(sum(&none, Axes::Of(&[1]), false).unwrap().value.data(), [0.0, 0.0]);
        assert!(mean(&none, Axes::Of(&[1]), false).unwrap().value.data()[0].is_nan());
    }
}
