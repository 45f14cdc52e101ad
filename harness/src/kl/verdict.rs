//! What a comparison is held to: thresholds on the bounds of intervals, above what the control lanes
//! show.

use serde::{Deserialize, Serialize};

use super::control::ControlLane;
use crate::{
    exit::ExitCode,
    stats::{Agreement, Intervals, Summary},
};

/// What may differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// Most mean KL, in nats.
    pub max_mean: Option<f64>,
    /// Highest 99th percentile of KL, in nats.
    pub max_p99: Option<f64>,
    /// Least part of positions whose argmax agrees.
    pub min_agreement: Option<f64>,
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// One for each threshold.
    pub checks: Vec<Check>,
    /// NaNs and infinities; a single one fails.
    pub nonfinite: u64,
}

/// One threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// `mean KL`, `p99 KL`, `disagreement`.
    pub what: String,
    /// Found.
    pub value: f64,
    /// Upper bound of its interval, the wider one of those there are.
    pub upper: Option<f64>,
    /// The most that a control lane shows.
    pub floor: f64,
    /// `upper - floor`, what is held to the threshold.
    pub excess: Option<f64>,
    /// The threshold.
    pub most: f64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a threshold was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The excess is within it.
    Held,
    /// It is not.
    Exceeded,
    /// It is below what the same path shows twice: nothing could be told by it.
    BelowFloor,
    /// There are too few clusters for an interval.
    NoInterval,
}

impl Thresholds {
    /// Whether there is one at all.
    pub fn any(&self) -> bool {
        self.max_mean.is_some() || self.max_p99.is_some() || self.min_agreement.is_some()
    }

    pub(super) fn judge(
        &self,
        summary: &Summary,
        control: &[ControlLane],
        nonfinite: u64,
    ) -> Verdict {
        let floor =
            |of: fn(&Summary) -> f64| control.iter().map(|lane| of(&lane.summary)).fold(0.0, worst);
        let mean = self.max_mean.map(|most| {
            let upper = summary.kl_mean.as_ref().map(highest);
            check("mean KL", summary.kl.mean, upper, floor(|s| s.kl.mean), most)
        });
        let p99 = self.max_p99.map(|most| {
            let upper = summary.kl_p99.as_ref().map(highest);
            check("p99 KL", summary.kl.p99, upper, floor(|s| s.kl.p99), most)
        });
        // An agreement of at least x is a disagreement of at most 1 - x.
        let agreement = self.min_agreement.map(|least| {
            let upper = disagreement(&summary.agreement);
            let value = 1.0 - summary.agreement.share();
            let floor = floor(|s| 1.0 - s.agreement.share());
            check("disagreement", value, upper, floor, 1.0 - least)
        });
        Verdict { checks: [mean, p99, agreement].into_iter().flatten().collect(), nonfinite }
    }
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn held(&self) -> bool {
        self.nonfinite == 0 && self.checks.iter().all(|check| check.outcome == Outcome::Held)
    }

    /// The exit code: a threshold that no run could show to be met is a request that cannot be honoured.
    pub fn exit(&self) -> ExitCode {
        let any = |outcome| self.checks.iter().any(|check| check.outcome == outcome);
        if any(Outcome::BelowFloor) || any(Outcome::NoInterval) {
            ExitCode::Usage
        } else if self.held() {
            ExitCode::Held
        } else {
            ExitCode::Mismatch
        }
    }
}

fn check(what: &str, value: f64, upper: Option<f64>, floor: f64, most: f64) -> Check {
    let excess = upper.map(|upper| upper - floor);
    let outcome = match excess {
        _ if !(floor <= most) => Outcome::BelowFloor,
        None => Outcome::NoInterval,
        Some(excess) if !(excess <= most) => Outcome::Exceeded,
        Some(_) => Outcome::Held,
    };
    Check { what: what.to_owned(), value, upper, floor, excess, most, outcome }
}

fn highest(intervals: &Intervals) -> f64 {
    worst(intervals.percentile.high, intervals.bca.high)
}

/// The upper bound of the disagreement: positions of a window are not independent, as Wilson's interval
/// has them, and an agreement of all positions has no spread to resample.
fn disagreement(agreement: &Agreement) -> Option<f64> {
    let wilson = agreement.wilson?.low;
    let least = agreement.bootstrap.map_or(wilson, |intervals| {
        let resampled = -worst(-intervals.percentile.low, -intervals.bca.low);
        -worst(-wilson, -resampled)
    });
    Some(1.0 - least)
}

/// The greater of two, and NaN where one is.
fn worst(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::within(Some(0.3), 0.0, 0.3, Outcome::Held)]
    #[case::above(Some(0.31), 0.0, 0.3, Outcome::Exceeded)]
    #[case::excess_counts(Some(0.375), 0.125, 0.25, Outcome::Held)]
    #[case::below_the_floor(Some(0.4), 0.31, 0.3, Outcome::BelowFloor)]
    #[case::nan(Some(f64::NAN), 0.0, 0.3, Outcome::Exceeded)]
    #[case::nan_floor(Some(0.1), f64::NAN, 0.3, Outcome::BelowFloor)]
    #[case::no_interval(None, 0.0, 0.3, Outcome::NoInterval)]
    fn a_threshold_is_about_the_excess_of_the_upper_bound(
        #[case] upper: Option<f64>,
        #[case] floor: f64,
        #[case] most: f64,
        #[case] wanted: Outcome,
    ) {
        assert_eq!(check("x", 0.2, upper, floor, most).outcome, wanted);
    }

    #[test]
    fn a_single_nan_fails_without_any_threshold() {
        let verdict = Verdict { checks: vec![], nonfinite: 1 };
        assert_eq!(verdict.exit(), ExitCode::Mismatch);
        assert_eq!(Verdict { nonfinite: 0, ..verdict }.exit(), ExitCode::Held);
    }
}
