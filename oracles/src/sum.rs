//! Compensated sums, so that a reference over a long row is as good as one over a short row.
//!
//! Knuth's branch-free two-sum in eight independent lanes (Knuth, TAOCP 2, 4.2.2; Ogita, Rump and
//! Oishi, "Accurate sum and dot product", 2005, algorithm Sum2): the result is as if summed in
//! twice the precision and rounded once.

const LANES: usize = 8;

/// A running compensated sum. Infinities and NaN come out as plain summation gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compensated {
    sum: f64,
    error: f64,
}

impl Compensated {
    /// Adds one term.
    #[inline]
    pub fn add(&mut self, term: f64) {
        let next = self.sum + term;
        let back = next - self.sum;
        self.error += (self.sum - (next - back)) + (term - back);
        self.sum = next;
    }

    /// The sum so far.
    pub fn value(&self) -> f64 {
        // The error term of an overflowed sum is inf - inf.
        if self.sum.is_finite() { self.sum + self.error } else { self.sum }
    }
}

impl FromIterator<f64> for Compensated {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Self {
        let mut total = Self::default();
        terms.into_iter().for_each(|term| total.add(term));
        total
    }
}

fn combine(lanes: &[Compensated; LANES], tail: impl Iterator<Item = f64>) -> f64 {
    let mut total: Compensated = tail.collect();
    for lane in lanes {
        total.add(lane.sum);
    }
    // Added last and apart, so that a NaN error term cannot hide an infinite sum.
    if total.sum.is_finite() {
        for lane in lanes {
            total.add(lane.error);
        }
    }
    total.value()
}

/// Σ terms.
pub fn sum(terms: &[f64]) -> f64 {
    sum_by(terms, |term| term)
}

/// Σ f(term).
pub fn sum_by(terms: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [Compensated::default(); LANES];
    let (blocks, tail) = terms.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &term) in lanes.iter_mut().zip(block) {
            lane.add(f(term));
        }
    }
    combine(&lanes, tail.iter().map(|&term| f(term)))
}

/// Σ aᵢbᵢ. Products of values no wider than float32 are exact in float64, so for those only the sum
/// rounds.
///
/// The slices must be equally long; the longer one's tail is ignored.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [Compensated::default(); LANES];
    let (a_blocks, a_tail) = a.as_chunks::<LANES>();
    let (b_blocks, b_tail) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
            lane.add(x * y);
        }
    }
    combine(&lanes, a_tail.iter().zip(b_tail).map(|(x, y)| x * y))
}

/// Σ|aᵢbᵢ|, the condition of [`dot`]. Positive terms need no compensation.
pub fn dot_condition(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (a_blocks, a_tail) = a.as_chunks::<LANES>();
    let (b_blocks, b_tail) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
            *lane += (x * y).abs();
        }
    }
    lanes.iter().sum::<f64>() + a_tail.iter().zip(b_tail).map(|(x, y)| (x * y).abs()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelling_terms_leave_the_small_one() {
        let mut terms = vec![1.0; 40];
        terms[3] = 1e100;
        terms[11] = -1e100;
        assert_eq!(sum(&terms), 38.0);
        assert_eq!(dot(&terms, &vec![2.0; 40]), 76.0);
    }

    #[test]
    fn a_long_row_of_tenths_is_good_to_one_unit() {
        let terms = vec![0.1; 1_000_003];
        // 0.1 as a float64 is 3602879701896397 / 2^55, so the exact sum is rational and rounds to
        // this.
        let exact = (3_602_879_701_896_397_i128 * 1_000_003) as f64 / (1_i64 << 55) as f64;
        assert_eq!(sum(&terms), exact);
    }

    #[test]
    fn infinities_and_nan_come_through() {
        assert_eq!(sum(&[1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert_eq!(sum(&[f64::NEG_INFINITY; 20]), f64::NEG_INFINITY);
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert!(sum(&[1.0, f64::NAN]).is_nan());
    }

    #[test]
    fn condition_is_the_sum_of_magnitudes() {
        let a: Vec<f64> = (0..19).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        assert_eq!(dot_condition(&a, &[2.0; 19]), 38.0);
        assert_eq!(dot(&a, &[2.0; 19]), 2.0);
    }
}
