//! Sums over the errors of two runs of numbers, in float64, piece by piece.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the narrowest registers"
)]

use half::bf16;
use mlx_parity_tensor::{Dtype, TensorView, bf16_to_f32};
use serde::{Deserialize, Serialize};

use super::class::Class;
use super::vector::{BLOCK, Kernel, vectorized};

/// Independent sums: enough to keep the vector units busy, and so that no sum grows long. The answer depends on this
/// number, and on nothing of the machine.
const LANES: usize = 32;

/// Elements summed at once: enough that what is done once a run costs nothing.
const RUN: usize = 16 * BLOCK;

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
    /// Flat index of the first pair with the greatest error, if any has an error; unknown after [`Moments::add`].
    pub max_at: Option<usize>,
}

impl Moments {
    /// Adds two equally long runs of elements, the first of which has flat index `start` in its tensor. Where the
    /// greatest error is remains unknown.
    pub fn add(&mut self, dtype: Dtype, start: usize, got: &[u8], want: &[u8]) {
        let bytes = RUN * dtype.size();
        for (at, (got, want)) in got.chunks(bytes).zip(want.chunks(bytes)).enumerate() {
            let sums = vectorized(SumsOfBytes { dtype, got, want });
            self.absorb(&sums);
            if sums.pairs < sums.all {
                let pairs = widened(dtype, got).into_iter().zip(widened(dtype, want));
                self.add_apart(start + at * RUN, pairs);
            }
        }
    }

    /// Adds two equally long runs of numbers.
    pub fn add_values(&mut self, start: usize, got: &[f64], want: &[f64]) {
        for (at, (got, want)) in got.chunks(RUN).zip(want.chunks(RUN)).enumerate() {
            let start = start + at * RUN;
            let sums = vectorized(SumsOfValues { got, want });
            let pairs = || got.iter().copied().zip(want.iter().copied());
            let earlier = self.max_at.is_some_and(|at| start < at);
            if sums.max_abs > self.max_abs || (sums.max_abs == self.max_abs && earlier) {
                let at = pairs().position(|(a, b)| (a - b).abs() == sums.max_abs);
                self.max_at = at.map(|at| start + at);
            }
            self.absorb(&sums);
            if sums.pairs < sums.all {
                self.add_apart(start, pairs());
            }
        }
    }

    fn absorb(&mut self, sums: &Sums) {
        self.pairs += sums.pairs;
        self.sum_abs += sums.sum_abs;
        self.sum_squares += sums.sum_squares;
        self.sum += sums.sum;
        self.max_abs = if sums.max_abs > self.max_abs { sums.max_abs } else { self.max_abs };
    }

    fn add_apart(&mut self, start: usize, pairs: impl Iterator<Item = (f64, f64)>) {
        for (at, (a, b)) in pairs.enumerate() {
            let agree = (a - b).is_finite() || (!a.is_finite() && Class::of(a) == Class::of(b));
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

fn widened(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    let shape = [bytes.len() / dtype.size()];
    TensorView::new(dtype, &shape, bytes).map_or_else(|_| Vec::new(), |view| view.to_f64())
}

/// Sums over one run.
#[derive(Default)]
struct Sums {
    all: u64,
    pairs: u64,
    sum_abs: f64,
    sum_squares: f64,
    sum: f64,
    max_abs: f64,
}

struct SumsOfValues<'a> {
    got: &'a [f64],
    want: &'a [f64],
}

impl Kernel for SumsOfValues<'_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        Sums::of(self.got, self.want, |x| *x)
    }
}

struct SumsOfBytes<'a> {
    dtype: Dtype,
    got: &'a [u8],
    want: &'a [u8],
}

impl Kernel for SumsOfBytes<'_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        match self.dtype {
            Dtype::F32 => self.each(|b| f64::from(f32::from_le_bytes(*b))),
            Dtype::Bf16 => self.each(|b| f64::from(bf16_to_f32(bf16::from_le_bytes(*b)))),
            Dtype::F64 => self.each(|b| f64::from_le_bytes(*b)),
            dtype => {
                let (got, want) = (widened(dtype, self.got), widened(dtype, self.want));
                Sums::of(&got, &want, |x| *x)
            }
        }
    }
}

impl SumsOfBytes<'_> {
    #[inline(always)]
    fn each<const N: usize>(&self, value: impl Fn(&[u8; N]) -> f64) -> Sums {
        Sums::of(self.got.as_chunks().0, self.want.as_chunks().0, value)
    }
}

impl Sums {
    #[inline(always)]
    fn of<T>(got: &[T], want: &[T], value: impl Fn(&T) -> f64) -> Self {
        let mut sums = Self::default();
        let mut errors = [0.0; BLOCK];
        for (got, want) in got.chunks(BLOCK).zip(want.chunks(BLOCK)) {
            for ((error, a), b) in errors.iter_mut().zip(got).zip(want) {
                *error = value(a) - value(b);
            }
            // Zeros change no sum.
            errors[got.len()..].fill(0.0);
            sums.add(got.len() as u64, &mut errors);
        }
        sums
    }

    /// Adds a block, of whose errors the first `all` are of pairs.
    #[inline(always)]
    fn add(&mut self, all: u64, errors: &mut [f64; BLOCK]) {
        let mut pairs = all;
        let mut sum_abs = lane_sums(errors, f64::abs);
        // One NaN or infinity is in the sum for good.
        if !sum_abs.is_finite() {
            pairs -= errors.iter().filter(|error| !error.is_finite()).count() as u64;
            *errors = errors.map(|error| if error.is_finite() { error } else { 0.0 });
            sum_abs = lane_sums(errors, f64::abs);
        }
        self.all += all;
        self.pairs += pairs;
        self.sum_abs += sum_abs;
        self.sum_squares += lane_sums(errors, |error| error * error);
        self.sum += lane_sums(errors, |error| error);
        let max = max_magnitude(errors);
        self.max_abs = if max > self.max_abs { max } else { self.max_abs };
    }
}

/// One pass for each sum: passes that share a loop end up sharing registers badly.
#[inline(always)]
fn lane_sums(errors: &[f64; BLOCK], part: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    for errors in errors.as_chunks::<LANES>().0 {
        for (sum, error) in sums.iter_mut().zip(errors) {
            *sum += part(*error);
        }
    }
    sums.iter().sum()
}

#[inline(always)]
fn max_magnitude(errors: &[f64; BLOCK]) -> f64 {
    let larger = |max: f64, x: f64| if x > max { x } else { max };
    let mut maxima = [0.0; LANES];
    for errors in errors.as_chunks::<LANES>().0 {
        for (max, error) in maxima.iter_mut().zip(errors) {
            *max = larger(*max, error.abs());
        }
    }
    maxima.into_iter().fold(0.0, larger)
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
            let [x, y] = [&got, &want].map(|v| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
            let (mut late, mut early) = (Moments::default(), Moments::default());
            late.add_values(at, &x[at..], &y[at..]);
            early.add_values(0, &x[..at], &y[..at]);
            late.merge(&early);
            let pairs = || got.iter().zip(&want).map(|(a, b)| f64::from(*a) - f64::from(*b));
            let max = pairs().map(f64::abs).max_by(f64::total_cmp).unwrap();
            prop_assert_eq!(late.max_abs, max);
            prop_assert_eq!(late.max_at, if max > 0.0 { pairs().position(|e| e.abs() == max) } else { None });
            prop_assert_eq!(late.pairs, got.len() as u64);
            let [a, b] = [&got, &want].map(|v| HostTensor::from_f32([v.len()], v).unwrap());
            let mut bytes = Moments::default();
            bytes.add(Dtype::F32, 0, a.bytes(), b.bytes());
            prop_assert_eq!((bytes.max_abs, bytes.pairs), (max, late.pairs));
            prop_assert!((bytes.sum_squares - late.sum_squares).abs() <= 1e-9 * late.sum_squares);
            let sum: f64 = pairs().map(f64::abs).sum();
            prop_assert!((late.sum_abs - sum).abs() <= 1e-9 * sum.max(1.0));
        }
    }
}
