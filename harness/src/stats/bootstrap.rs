//! Intervals by drawing whole clusters again, with replacement (Efron and Tibshirani, "An introduction to the
//! bootstrap", 1993; by cluster: Davison and Hinkley, "Bootstrap methods and their application", 1997, §3.8).

use serde::{Deserialize, Serialize};

use super::interval::Interval;

/// Resampling settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    /// How often to draw.
    pub resamples: usize,
    /// Seed: the same one gives the same intervals, on any number of threads.
    pub seed: u64,
    /// Level of confidence.
    pub level: f64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 10_000, seed: 0, level: 0.95 }
    }
}

/// Two intervals of one number from the same resamples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Standard deviation of the resampled numbers.
    pub error: f64,
    /// Quantiles of the resampled numbers, at levels widened for few clusters (Hesterberg, "What teachers should know
    /// about the bootstrap", 2015, §5.2).
    pub percentile: Interval,
    /// The same, corrected for bias and acceleration (Efron, "Better bootstrap confidence intervals", 1987).
    pub bca: Interval,
}

impl Bootstrap {
    /// Intervals of the mean of `values`, where `clusters` says of which cluster each is. `None` from fewer than two
    /// clusters, which show no spread, or when lengths differ.
    pub fn mean(&self, values: &[f64], clusters: &[u32]) -> Option<Intervals> {
        todo!()
    }

    /// Intervals of quantile `q` of `values` ([`super::quantile`]).
    pub fn quantile(&self, values: &[f64], clusters: &[u32], q: f64) -> Option<Intervals> {
        todo!()
    }
}
