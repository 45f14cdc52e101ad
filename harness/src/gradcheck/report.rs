//! What came of a check.

use serde::{Deserialize, Serialize};

/// A gradient beside finite differences.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GradientReport {
    /// Every comparison and every property held.
    pub held: bool,
    /// Comparisons with finite differences.
    pub comparisons: usize,
    /// Those outside their bounds.
    pub over: usize,
    /// Error of the comparison nearest to its bound, or farthest over it; none where it is no number.
    pub error: Option<f64>,
    /// The bound of that comparison.
    pub bound: f64,
    /// Which comparison that is.
    pub at: String,
    /// The smallest error of a single entry, anywhere in the gradients, that would have been seen.
    pub power: f64,
    /// The same over the root mean square of the gradient.
    pub relative_power: f64,
    /// Derivatives that needed forward, central and five-point differences.
    pub orders: [usize; 3],
    /// The step of the last order used, for the operand that is least certain.
    pub step: f64,
    /// How far neighbouring steps differ there, over the size of the derivative.
    pub spread: f64,
    /// Properties that were looked at, in order.
    pub properties: Vec<String>,
    /// What does not hold, in words.
    pub failures: Vec<String>,
}

impl GradientReport {
    /// Error over bound; infinite where the error is no number.
    pub fn ratio(&self) -> f64 {
        ratio(self.error.unwrap_or(f64::NAN), self.bound)
    }

    /// `6e-8 of 2e-7; would have seen 4e-6`.
    pub fn words(&self) -> String {
        let error = self.error.map_or("NaN".to_owned(), |error| format!("{error:.0e}"));
        format!("{error} of {:.0e}; would have seen {:.0e}", self.bound, self.power)
    }

    /// The report as of both checks: the worse comparison, the weaker power, every failure.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        let orders = [0, 1, 2].map(|i| self.orders[i] + other.orders[i]);
        let uncertain = if other.spread > self.spread { &other } else { &self };
        let (step, spread) = (uncertain.step, uncertain.spread);
        let blind = if other.relative_power > self.relative_power { &other } else { &self };
        let (power, relative_power) = (blind.power, blind.relative_power);
        let worse =
            other.comparisons > 0 && (self.comparisons == 0 || other.ratio() > self.ratio());
        let (worse, rest) = if worse { (other, self) } else { (self, other) };
        let mut failures = rest.failures;
        failures.extend(worse.failures);
        let mut properties = worse.properties;
        properties.extend(
            rest.properties.into_iter().filter(|p| !properties.contains(p)).collect::<Vec<_>>(),
        );
        Self {
            held: worse.held && rest.held,
            comparisons: worse.comparisons + rest.comparisons,
            over: worse.over + rest.over,
            error: worse.error,
            bound: worse.bound,
            at: worse.at,
            power,
            relative_power,
            orders,
            step,
            spread,
            properties,
            failures,
        }
    }
}

/// Error over bound; infinite for an error that is no number.
pub(super) fn ratio(error: f64, bound: f64) -> f64 {
    if error == 0.0 {
        return 0.0;
    }
    let ratio = error / bound;
    if ratio.is_nan() { f64::INFINITY } else { ratio }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_reports_keep_the_worse_comparison_and_the_weaker_power() {
        let good = GradientReport {
            held: true,
            comparisons: 2,
            error: Some(1.0),
            bound: 10.0,
            at: "good".into(),
            power: 5.0,
            relative_power: 0.5,
            ..GradientReport::default()
        };
        let bad = GradientReport {
            held: false,
            comparisons: 1,
            over: 1,
            error: None,
            bound: 1.0,
            at: "bad".into(),
            power: 2.0,
            relative_power: 0.1,
            failures: vec!["NaN".into()],
            ..GradientReport::default()
        };
        for joined in [good.clone().joined(bad.clone()), bad.joined(good)] {
            assert!(!joined.held);
            assert_eq!((joined.comparisons, joined.over, joined.at.as_str()), (3, 1, "bad"));
            assert_eq!((joined.power, joined.relative_power), (5.0, 0.5));
            assert_eq!(joined.words(), "NaN of 1e0; would have seen 5e0");
        }
    }
}
