//! How often two paths choose the same token.

use serde::{Deserialize, Serialize};

use super::bootstrap::{Bootstrap, Intervals};
use super::interval::Interval;
use super::wilson::wilson;

/// Positions where the argmax agrees.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreement {
    /// Positions that agree.
    pub agree: u64,
    /// Positions.
    pub of: u64,
    /// The score interval, which takes positions as independent; `None` without positions.
    pub wilson: Option<Interval>,
    /// Intervals over whole clusters.
    pub bootstrap: Option<Intervals>,
}

impl Agreement {
    /// agree / of; NaN without positions.
    pub fn share(&self) -> f64 {
        self.agree as f64 / self.of as f64
    }

    pub(super) fn of(agrees: &[bool], clusters: &[u32], bootstrap: &Bootstrap) -> Self {
        let shares: Vec<f64> = agrees.iter().map(|agree| f64::from(u8::from(*agree))).collect();
        let agree = agrees.iter().filter(|agree| **agree).count() as u64;
        let of = agrees.len() as u64;
        let wilson = wilson(agree, of, bootstrap.level);
        Self { agree, of, wilson, bootstrap: bootstrap.mean(&shares, clusters) }
    }
}
