//! A control lane in a few numbers.

use serde::{Deserialize, Serialize};

use crate::stats::{Interval, Intervals, Position, Summary, SummaryOptions};

/// A path played anew, beside its own trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// Mean KL(trajectory‖lane), in nats.
    pub mean: f64,
    /// Upper end of its 95 % interval.
    pub mean_high: f64,
    /// Upper end of that of the 99th percentile.
    pub p99_high: f64,
    /// Positions whose likeliest token is the trajectory's.
    pub agree: u64,
    /// Positions.
    pub of: u64,
}

impl Lane {
    pub(super) fn of(positions: &[Position], clusters: &[u32]) -> Self {
        let summary = Summary::of(positions, clusters, &SummaryOptions::default());
        Self {
            mean: summary.kl.mean,
            mean_high: widest(summary.kl_mean).high,
            p99_high: widest(summary.kl_p99).high,
            agree: summary.agreement.agree,
            of: summary.agreement.of,
        }
    }
}

/// Both bootstrap intervals in one: what either leaves possible. NaN, which meets no bound, where there is none.
pub(super) fn widest(intervals: Option<Intervals>) -> Interval {
    let Some(Intervals { percentile, bca, .. }) = intervals else {
        return Interval { low: f64::NAN, high: f64::NAN };
    };
    let low = if percentile.low < bca.low { percentile.low } else { bca.low };
    // A NaN on either side must come through.
    let high = if percentile.high > bca.high { percentile.high } else { bca.high };
    Interval { low, high }
}

/// The greatest margin at which a control chose another token.
pub(super) fn noise_margin(control: &[Position]) -> f64 {
    let undecided = control.iter().filter(|position| position.is_scored() && !position.agree);
    undecided.map(|position| position.margin_teacher).fold(0.0, f64::max)
}
