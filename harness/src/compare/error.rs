//! Error of a result against a float64 reference.

use mlx_parity_tensor::TensorView;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::moments::Moments;

/// Elements one thread takes at a time.
const PIECE: usize = 1 << 16;

/// A result and its reference that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} has {found} values, wanted {wanted} for shape {shape:?}")]
pub struct LengthMismatch {
    /// Which argument.
    pub what: &'static str,
    /// Its length.
    pub found: usize,
    /// Elements of the result.
    pub wanted: usize,
    /// Shape of the result.
    pub shape: Vec<usize>,
}

impl LengthMismatch {
    pub(super) fn check(
        what: &'static str,
        found: usize,
        tensor: &TensorView<'_>,
    ) -> Result<(), Self> {
        let (wanted, shape) = (tensor.len(), tensor.shape().to_vec());
        if found == wanted { Ok(()) } else { Err(Self { what, found, wanted, shape }) }
    }
}

/// Error of a whole tensor. All sums are float64, over pairs that are both finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorStats {
    /// Pairs with a finite error.
    pub pairs: u64,
    /// Pairs of different class (NaN, infinity); in no other number here.
    pub apart: u64,
    /// Coordinates of the first pair of different class.
    pub first_apart: Option<Vec<usize>>,
    /// max|got − want|.
    pub max_abs: f64,
    /// Coordinates where it is, if there is an error.
    pub max_at: Option<Vec<usize>>,
    /// Mean of |got − want|.
    pub mean_abs: f64,
    /// Root of the mean of (got − want)².
    pub rmse: f64,
    /// Mean of got − want.
    pub bias: f64,
    /// max|got − want| / |want| over wanted values that are not zero.
    pub max_rel: f64,
    /// By magnitude of the wanted value, smallest first; empty buckets left out.
    pub by_magnitude: Vec<MagnitudeError>,
    /// The row (run along the last axis) with the greatest rmse, if any has an error.
    pub worst_row: Option<RowError>,
}

/// Error of the elements whose wanted magnitude is in `[low, high)`; zeros have a bucket `[0, 0)` of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MagnitudeError {
    /// Least magnitude, a power of 16.
    pub low: f64,
    /// 16 times that.
    pub high: f64,
    /// Pairs with a finite error.
    pub pairs: u64,
    /// Their greatest absolute error.
    pub max_abs: f64,
    /// Their root mean square error.
    pub rmse: f64,
}

/// Error of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowError {
    /// Coordinates on all axes but the last.
    pub row: Vec<usize>,
    /// Pairs of different class.
    pub apart: u64,
    /// Greatest absolute error.
    pub max_abs: f64,
    /// Root mean square error.
    pub rmse: f64,
}

/// Measures `got` against `want`, one value for each element in row-major order.
///
/// # Errors
/// [`LengthMismatch`].
pub fn error_stats(got: &TensorView<'_>, want: &[f64]) -> Result<ErrorStats, LengthMismatch> {
    LengthMismatch::check("reference", want.len(), got)?;
    let values = got.to_f64();
    let whole = moments(&values, want);
    let rows = row_moments(got, &values, want);
    Ok(ErrorStats {
        pairs: whole.pairs,
        apart: whole.apart,
        first_apart: whole.first_apart.map(|at| got.coords(at)),
        max_abs: whole.max_abs,
        max_at: whole.max_at.map(|at| got.coords(at)),
        mean_abs: whole.mean_abs(),
        rmse: whole.rmse(),
        bias: whole.bias(),
        max_rel: max_relative(&values, want),
        by_magnitude: by_magnitude(&values, want),
        worst_row: worst_row(got, &rows),
    })
}

/// Sums for each row (run along the last axis), in order. A scalar is one row.
///
/// # Errors
/// [`LengthMismatch`].
pub fn row_errors(got: &TensorView<'_>, want: &[f64]) -> Result<Vec<Moments>, LengthMismatch> {
    LengthMismatch::check("reference", want.len(), got)?;
    Ok(row_moments(got, &got.to_f64(), want))
}

fn moments(got: &[f64], want: &[f64]) -> Moments {
    let pieces = got.par_chunks(PIECE).zip(want.par_chunks(PIECE)).enumerate();
    let found: Vec<Moments> = pieces
        .map(|(at, (got, want))| {
            let mut moments = Moments::default();
            moments.add_values(at * PIECE, got, want);
            moments
        })
        .collect();
    // In order, so that the sums do not depend on the threads.
    found.iter().fold(Moments::default(), |mut sum, piece| {
        sum.merge(piece);
        sum
    })
}

fn row_moments(tensor: &TensorView<'_>, got: &[f64], want: &[f64]) -> Vec<Moments> {
    let row = tensor.shape().last().copied().unwrap_or(1).max(1);
    let rows = got.par_chunks(row).zip(want.par_chunks(row)).enumerate();
    rows.with_min_len(PIECE.div_ceil(row))
        .map(|(at, (got, want))| {
            let mut moments = Moments::default();
            moments.add_values(at * row, got, want);
            moments
        })
        .collect()
}

/// A row with a class mismatch is worse than any without.
fn worst_row(tensor: &TensorView<'_>, rows: &[Moments]) -> Option<RowError> {
    let mut worst: Option<(usize, &Moments)> = None;
    for (at, row) in rows.iter().enumerate() {
        let beats = |best: &Moments| {
            row.apart > best.apart || (row.apart == best.apart && row.rmse() > best.rmse())
        };
        if worst.map_or(row.apart > 0 || row.max_abs > 0.0, |(_, best)| beats(best)) {
            worst = Some((at, row));
        }
    }
    let (at, row) = worst?;
    let length = tensor.shape().last().copied().unwrap_or(1);
    let mut coords = tensor.coords(at * length);
    coords.pop();
    Some(RowError { row: coords, apart: row.apart, max_abs: row.max_abs, rmse: row.rmse() })
}

fn max_relative(got: &[f64], want: &[f64]) -> f64 {
    let relative = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs();
    let ratios = got.iter().zip(want).filter(|(_, b)| **b != 0.0).map(relative);
    // A pair that is not finite is counted as apart, not here.
    ratios.filter(|r| r.is_finite()).fold(0.0, |max, r| if r > max { r } else { max })
}

/// Exponents of 16 of all finite numbers, and one bucket for zero.
const MAGNITUDES: usize = 2 + (1074 + 1024) / 4;

fn magnitude_of(want: f64) -> usize {
    if want == 0.0 { 0 } else { 1 + raised_exponent(want) / 4 }
}

/// The exponent of a finite number that is not zero (`2^e ≤ |x| < 2^(e+1)`), raised by 1076 to be positive.
fn raised_exponent(x: f64) -> usize {
    let bits = x.abs().to_bits();
    match (bits >> 52) as usize {
        0 => (u64::BITS - 1 - bits.leading_zeros()) as usize + 2,
        field => field + 53,
    }
}

fn by_magnitude(got: &[f64], want: &[f64]) -> Vec<MagnitudeError> {
    let mut buckets = vec![Moments::default(); MAGNITUDES];
    for (a, b) in got.iter().zip(want).filter(|(a, b)| (*a - *b).is_finite()) {
        let (bucket, error) = (&mut buckets[magnitude_of(*b)], (a - b).abs());
        bucket.pairs += 1;
        bucket.sum_squares += error * error;
        bucket.max_abs = if error > bucket.max_abs { error } else { bucket.max_abs };
    }
    let filled = buckets.iter().enumerate().filter(|(_, bucket)| bucket.pairs > 0);
    filled.map(|(at, bucket)| MagnitudeError::new(at, bucket)).collect()
}

impl MagnitudeError {
    fn new(bucket: usize, moments: &Moments) -> Self {
        let edge = |at: usize| 2f64.powi((at as i32 - 1) * 4 - 1076);
        let (low, high) = if bucket == 0 { (0.0, 0.0) } else { (edge(bucket), edge(bucket + 1)) };
        let (pairs, max_abs, rmse) = (moments.pairs, moments.max_abs, moments.rmse());
        Self { low, high, pairs, max_abs, rmse }
    }
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::HostTensor;

    use super::*;

    fn stats(shape: &[usize], got: &[f32], want: &[f64]) -> ErrorStats {
        error_stats(&HostTensor::from_f32(shape, got).unwrap().view(), want).unwrap()
    }

    #[test]
    fn known_errors_are_measured() {
        let found =
            stats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 9.0], &[1.0, 2.0, 3.5, 4.0, 4.0, 6.0]);
        assert_eq!((found.max_abs, found.max_at), (3.0, Some(vec![1, 2])));
        assert_eq!(found.mean_abs, 4.5 / 6.0);
        assert_eq!(found.bias, 3.5 / 6.0);
        assert_eq!(found.rmse, (10.25f64 / 6.0).sqrt());
        assert_eq!(found.max_rel, 0.5);
        let row = found.worst_row.unwrap();
        assert_eq!((row.row, row.max_abs, row.rmse), (vec![1], 3.0, (10.0f64 / 3.0).sqrt()));
    }

    #[test]
    fn no_error_has_no_place() {
        let found = stats(&[2, 2], &[0.0, -0.0, 1.0, f32::NAN], &[-0.0, 0.0, 1.0, f64::NAN]);
        assert_eq!((found.max_abs, found.max_at, found.apart, found.pairs), (0.0, None, 0, 3));
        assert_eq!(found.worst_row, None);
    }

    #[test]
    fn one_nan_is_seen_in_every_place_and_its_row_is_the_worst() {
        for at in 0..6 {
            let mut got = [1.0; 6];
            (got[(at + 3) % 6], got[at]) = (1e30, f32::NAN);
            let found = stats(&[2, 3], &got, &[1.0; 6]);
            assert_eq!(found.apart, 1);
            assert_eq!(found.first_apart, Some(vec![at / 3, at % 3]));
            assert_eq!(found.worst_row.unwrap().row, [at / 3]);
            assert!(found.max_abs > 0.0 && found.rmse.is_finite());
        }
    }

    #[test]
    fn small_values_have_a_bucket_of_their_own() {
        let found = stats(&[4], &[0.5, 1.5, 20.0, 1e-30], &[0.0, 1.0, 16.0, 1e-30]);
        let seen: Vec<_> = found.by_magnitude.iter().map(|b| (b.low, b.high, b.max_abs)).collect();
        assert_eq!(seen[0], (0.0, 0.0, 0.5));
        assert!(seen[1].0 <= 1e-30 && 1e-30 < seen[1].1 && seen[1].2 < 1e-36);
        assert_eq!(seen[2..], [(1.0, 16.0, 0.5), (16.0, 256.0, 4.0)]);
        assert_eq!(magnitude_of(f64::from_bits(1)), 1);
        assert!(magnitude_of(f64::MAX) < MAGNITUDES);
    }

    #[test]
    fn rows_of_a_scalar_and_of_nothing() {
        assert_eq!(stats(&[], &[2.0], &[1.0]).worst_row.unwrap().row, [0usize; 0]);
        assert_eq!(stats(&[3, 0], &[], &[]).pairs, 0);
    }

    #[test]
    fn another_length_is_an_error() {
        let got = HostTensor::from_f32([3], &[1.0; 3]).unwrap();
        let message = error_stats(&got.view(), &[1.0]).unwrap_err().to_string();
        assert_eq!(message, "reference has 1 values, wanted 3 for shape [3]");
    }

    #[test]
    fn many_threads_give_the_sums_of_one() {
        let want: Vec<f64> = (0..300_000).map(|i| f64::from(i).sin()).collect();
        let got: Vec<f32> = want.iter().map(|x| *x as f32).collect();
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone = one.install(|| stats(&[300, 1000], &got, &want));
        assert_eq!(alone, stats(&[300, 1000], &got, &want));
        assert!(alone.rmse > 1e-9 && alone.rmse < 1e-7, "{}", alone.rmse);
    }
}
