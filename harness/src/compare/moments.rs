//! Sums over the errors of two runs of numbers, in float64, piece by piece.

use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use super::class::Class;
use super::words::{self, BLOCK};

/// Independent sums, so that the compiler can use vector registers and the sums stay accurate.
const LANES: usize = 8;

/// An absolute and a relative bound, as `numpy.allclose` combines them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// Part of the wanted magnitude that is allowed.
    pub rtol: f64,
    /// Absolute error that is allowed.
    pub atol: f64,
}

/// Sums over pairs of numbers; pieces may come in any order and be merged.
///
/// A pair whose numbers are both NaN, or the same infinity, agrees and has no error. A pair of different classes is
/// `apart` and in no sum.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Moments {
    /// Pairs with a finite error.
    pub pairs: u64,
    /// Pairs of which one is NaN or infinite and the other is not the same.
    pub apart: u64,
    /// Flat index of the first pair that is apart.
    pub first_apart: Option<usize>,
    /// Σ|got − want|.
    pub sum_abs: f64,
    /// Σ(got − want)².
    pub sum_squares: f64,
    /// Σ(got − want).
    pub sum: f64,
    /// max|got − want|, 0 without pairs.
    pub max_abs: f64,
    /// Flat index of the first pair with the greatest error, if any has an error.
    pub max_at: Option<usize>,
}

impl Moments {
    /// Adds two equally long runs of elements, the first of which has flat index `start` in its tensor.
    pub fn add(&mut self, dtype: Dtype, start: usize, got: &[u8], want: &[u8]) {
        let (mut a, mut b) = ([0.0; BLOCK], [0.0; BLOCK]);
        let bytes = BLOCK * dtype.size();
        for (at, (got, want)) in got.chunks(bytes).zip(want.chunks(bytes)).enumerate() {
            let len = words::values(dtype, got, &mut a);
            words::values(dtype, want, &mut b);
            self.add_block(start + at * BLOCK, &a[..len], &b[..len]);
        }
    }

    /// Adds two equally long runs of numbers.
    pub fn add_values(&mut self, start: usize, got: &[f64], want: &[f64]) {
        for (at, (got, want)) in got.chunks(BLOCK).zip(want.chunks(BLOCK)).enumerate() {
            self.add_block(start + at * BLOCK, got, want);
        }
    }

    fn add_block(&mut self, start: usize, got: &[f64], want: &[f64]) {
        let block = Sums::of(got, want);
        self.pairs += block.pairs;
        self.sum_abs += block.sum_abs;
        self.sum_squares += block.sum_squares;
        self.sum += block.sum;
        if block.max_abs > self.max_abs {
            self.max_abs = block.max_abs;
            let mut pairs = got.iter().zip(want);
            self.max_at =
                pairs.position(|(a, b)| (a - b).abs() == block.max_abs).map(|at| start + at);
        } else if block.max_abs == self.max_abs && self.max_at.is_some_and(|at| start < at) {
            let mut pairs = got.iter().zip(want);
            self.max_at =
                pairs.position(|(a, b)| (a - b).abs() == block.max_abs).map(|at| start + at);
        }
        if block.pairs < got.len() as u64 {
            self.add_apart(start, got, want);
        }
    }

    fn add_apart(&mut self, start: usize, got: &[f64], want: &[f64]) {
        for (at, (a, b)) in got.iter().zip(want).enumerate() {
            let agree = (a - b).is_finite() || (!a.is_finite() && Class::of(*a) == Class::of(*b));
            if !agree {
                self.apart += 1;
                self.first_apart = Some(self.first_apart.map_or(start + at, |f| f.min(start + at)));
            }
        }
    }

    /// Adds what another run over the same tensor has seen.
    pub fn merge(&mut self, other: &Self) {
        self.pairs += other.pairs;
        self.apart += other.apart;
        self.first_apart = [self.first_apart, other.first_apart].into_iter().flatten().min();
        self.sum_abs += other.sum_abs;
        self.sum_squares += other.sum_squares;
        self.sum += other.sum;
        let earlier = other.max_at.is_some_and(|b| self.max_at.is_none_or(|a| b < a));
        if other.max_abs > self.max_abs || (other.max_abs == self.max_abs && earlier) {
            (self.max_abs, self.max_at) = (other.max_abs, other.max_at);
        }
    }

    /// Mean of |got − want|; 0 without pairs.
    pub fn mean_abs(&self) -> f64 {
        self.per_pair(self.sum_abs)
    }

    /// Root of the mean of (got − want)²; 0 without pairs.
    pub fn rmse(&self) -> f64 {
        self.per_pair(self.sum_squares).sqrt()
    }

    /// Mean of got − want; 0 without pairs.
    pub fn bias(&self) -> f64 {
        self.per_pair(self.sum)
    }

    fn per_pair(&self, sum: f64) -> f64 {
        if self.pairs == 0 { 0.0 } else { sum / self.pairs as f64 }
    }
}

impl Allowance {
    /// Whether a pair is within it. A pair with a NaN never is; equal infinities are.
    pub fn allows(self, got: f64, want: f64) -> bool {
        got == want || (got - want).abs() <= self.bound(want)
    }

    /// Infinite numbers allow nothing but themselves.
    fn bound(self, want: f64) -> f64 {
        if want.is_finite() { self.atol + self.rtol * want.abs() } else { -1.0 }
    }
}

/// Sums over one block.
struct Sums {
    pairs: u64,
    sum_abs: f64,
    sum_squares: f64,
    sum: f64,
    max_abs: f64,
}

impl Sums {
    fn of(got: &[f64], want: &[f64]) -> Self {
        let mut lanes = [Lane::default(); LANES];
        let (head_got, tail_got) = got.as_chunks::<LANES>();
        let (head_want, tail_want) = want.as_chunks::<LANES>();
        for (got, want) in head_got.iter().zip(head_want) {
            for lane in 0..LANES {
                lanes[lane].add(got[lane], want[lane]);
            }
        }
        for (got, want) in tail_got.iter().zip(tail_want) {
            lanes[0].add(*got, *want);
        }
        let total = |part: fn(&Lane) -> f64| lanes.iter().map(part).sum::<f64>();
        let max_abs =
            lanes.iter().fold(0.0, |max, lane| if lane.max > max { lane.max } else { max });
        Self {
            // Counted in f64 beside the sums: exact, and one kind of register for all.
            pairs: total(|lane| lane.pairs) as u64,
            sum_abs: total(|lane| lane.abs),
            sum_squares: total(|lane| lane.squares),
            sum: total(|lane| lane.sum),
            max_abs,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Lane {
    pairs: f64,
    abs: f64,
    squares: f64,
    sum: f64,
    max: f64,
}

impl Lane {
    #[inline]
    fn add(&mut self, got: f64, want: f64) {
        let error = got - want;
        // Neither NaN nor infinity is below infinity.
        let finite = error.abs() < f64::INFINITY;
        let error = if finite { error } else { 0.0 };
        let magnitude = error.abs();
        self.pairs += if finite { 1.0 } else { 0.0 };
        self.abs += magnitude;
        self.squares += error * error;
        self.sum += error;
        self.max = if magnitude > self.max { magnitude } else { self.max };
    }
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::HostTensor;
    use proptest::prelude::*;

    use super::*;

    fn moments(got: &[f64], want: &[f64]) -> Moments {
        let mut moments = Moments::default();
        moments.add_values(0, got, want);
        moments
    }

    #[test]
    fn known_errors_give_known_sums() {
        let found = moments(&[1.0, 2.0, 3.0, 4.0], &[1.0, 4.0, 2.0, 4.0]);
        assert_eq!((found.max_abs, found.max_at), (2.0, Some(1)));
        assert_eq!((found.mean_abs(), found.bias()), (0.75, -0.25));
        assert_eq!(found.rmse(), (5.0f64 / 4.0).sqrt());
    }

    #[test]
    fn a_nan_is_apart_and_never_lost() {
        for at in 0..20 {
            let mut got = vec![1.0; 20];
            got[at] = f64::NAN;
            let found = moments(&got, &[1.0; 20]);
            assert_eq!((found.apart, found.first_apart, found.pairs), (1, Some(at), 19));
        }
        let inf = f64::INFINITY;
        let found = moments(&[f64::NAN, inf, -inf, inf, 1.0], &[f64::NAN, inf, inf, 3.0, -inf]);
        assert_eq!((found.apart, found.first_apart, found.pairs), (3, Some(2), 0));
    }

    #[test]
    fn the_allowance_lets_no_nan_through() {
        let allowance = Allowance { rtol: 1e300, atol: 1e300 };
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (got, want) in [(nan, nan), (nan, 1.0), (1.0, nan), (inf, 1.0), (1.0, inf), (inf, -inf)]
        {
            assert!(!allowance.allows(got, want), "{got} {want}");
        }
        assert!(allowance.allows(inf, inf));
        let allowance = Allowance { rtol: 0.1, atol: 0.5 };
        assert!(allowance.allows(11.5, 10.0) && !allowance.allows(11.6, 10.0));
        let nan_allowance = Allowance { rtol: f64::NAN, atol: 0.5 };
        assert!(!nan_allowance.allows(1.1, 1.0));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(
            values in proptest::collection::vec((-1e3f32..1e3, -1e3f32..1e3), 1..5000),
            split: proptest::sample::Index,
        ) {
            let (got, want): (Vec<f32>, Vec<f32>) = values.into_iter().unzip();
            let at = split.index(got.len());
            let tensors = [&got, &want].map(|v| HostTensor::from_f32([v.len()], v).unwrap());
            let [a, b] = [tensors[0].bytes(), tensors[1].bytes()];
            let (mut late, mut early) = (Moments::default(), Moments::default());
            late.add(Dtype::F32, at, &a[at * 4..], &b[at * 4..]);
            early.add(Dtype::F32, 0, &a[..at * 4], &b[..at * 4]);
            late.merge(&early);
            let pairs = || got.iter().zip(&want).map(|(a, b)| f64::from(*a) - f64::from(*b));
            let max = pairs().map(f64::abs).max_by(f64::total_cmp).unwrap();
            prop_assert_eq!(late.max_abs, max);
            prop_assert_eq!(late.max_at, if max > 0.0 { pairs().position(|e| e.abs() == max) } else { None });
            prop_assert_eq!(late.pairs, got.len() as u64);
            let sum: f64 = pairs().map(f64::abs).sum();
            prop_assert!((late.sum_abs - sum).abs() <= 1e-9 * sum.max(1.0));
        }
    }
}
