//! What a run could have seen.

use statrs::distribution::{ContinuousCDF, Normal};

use super::wilson::two_sided_z;

/// The least true effect that a two-sided test at `level` finds with probability `power`, for an estimate with standard
/// error `error`: `(z_{(1+level)/2} + z_power)·error` (Bloom, "Minimum detectable effects", 1995).
pub fn minimum_detectable(error: f64, level: f64, power: f64) -> f64 {
    (two_sided_z(level) + Normal::standard().inverse_cdf(power)) * error
}

/// The least part of positions that differ of which at least one is among `trials` independent ones with probability
/// `power`: 1 − (1 − power)^(1/trials). NaN without trials.
pub fn rarest_seen(trials: u64, power: f64) -> f64 {
    if trials == 0 { f64::NAN } else { -((-power).ln_1p() / trials as f64).exp_m1() }
}
