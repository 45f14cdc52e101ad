//! What may differ.

use serde::{Deserialize, Serialize};

use crate::compare::{Allowance, Distance};

/// When two elements count as the same. Elements whose bits are equal always do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Bound {
    /// Bits must be equal.
    #[default]
    Exact,
    /// At most this many ULP apart; zeros of either sign are the same.
    Ulp(u64),
    /// `|a − b| ≤ atol + rtol·|b|`.
    Close(Allowance),
}

impl Bound {
    /// Whether two elements whose bits differ count as the same.
    pub fn allows(self, a: f64, b: f64, distance: Distance) -> bool {
        match self {
            Self::Exact => false,
            Self::Ulp(ulps) => distance.within(ulps),
            Self::Close(allowance) => allowance.allows(a, b),
        }
    }
}
