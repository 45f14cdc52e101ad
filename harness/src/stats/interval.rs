//! An interval of confidence.

use serde::{Deserialize, Serialize};

/// What a number may be, at some level of confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
    /// Whether `value` is between the bounds, both included; never for a NaN.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}
