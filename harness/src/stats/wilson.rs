//! An interval of a share.

use statrs::distribution::{ContinuousCDF, Normal};

use super::interval::Interval;

/// The score interval of `hits` of `trials` at `level` (Wilson, "Probable inference, the law of succession, and
/// statistical inference", 1927), without correction for continuity. `None` without trials.
///
/// It takes the trials as independent. Positions of one prompt are not quite: see [`super::bootstrap`] for an interval
/// over whole prompts.
pub fn wilson(hits: u64, trials: u64, level: f64) -> Option<Interval> {
    if trials == 0 || hits > trials {
        return None;
    }
    let (n, share) = (trials as f64, hits as f64 / trials as f64);
    let z = two_sided_z(level);
    let weight = z * z / n;
    let center = (share + weight / 2.0) / (1.0 + weight);
    let half = (z / (1.0 + weight)) * (share * (1.0 - share) / n + weight / (4.0 * n)).sqrt();
    // The bound at a share of nothing or all is exact; rounding would miss it.
    let low = if hits == 0 { 0.0 } else { center - half };
    let high = if hits == trials { 1.0 } else { center + half };
    Some(Interval { low, high })
}

/// How many standard errors to either side hold `level` of a normal distribution.
pub(super) fn two_sided_z(level: f64) -> f64 {
    Normal::standard().inverse_cdf(f64::midpoint(1.0, level))
}
