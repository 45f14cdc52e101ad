//! Whether two paired lanes differ.

use serde::{Deserialize, Serialize};

/// The outcome of a paired permutation test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permutation {
    /// Mean of the differences.
    pub difference: f64,
    /// How likely a difference at least as far from 0, in either direction, is when neither lane is above the other.
    pub p_value: f64,
    /// Sign patterns that were tried; all there are, when `exact`.
    pub patterns: u64,
    /// Whether every sign pattern was tried.
    pub exact: bool,
}

/// Tests whether the mean of `a − b` is 0, by flipping the sign of whole clusters (Fisher, "The design of experiments",
/// 1935, §21). All patterns are tried where there are no more than `patterns`; otherwise that many random ones from
/// `seed`, and the observed one counts as one of them (Phipson and Smyth, 2010). `None` without values, or when lengths
/// differ.
pub fn paired(a: &[f64], b: &[f64], clusters: &[u32], patterns: u64, seed: u64) -> Option<Permutation> {
    todo!()
}
