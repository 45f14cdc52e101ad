//! Whether two paired lanes differ.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::clusters::Clusters;
use crate::ops::Source;

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

/// Sums closer than this part of Σ|d| are equal: they differ by the order of their terms only.
const ROUNDING: f64 = 1e-12;

/// Tests whether the mean of `a − b` is 0, by flipping the sign of whole clusters (Fisher, "The design of experiments",
/// 1935, §21). All patterns are tried where there are no more than `patterns`; otherwise that many random ones from
/// `seed`, and the observed one counts as one more (Phipson and Smyth, "Permutation p-values should never be zero",
/// 2010). `None` without values, or when lengths differ.
pub fn paired(
    a: &[f64],
    b: &[f64],
    clusters: &[u32],
    patterns: u64,
    seed: u64,
) -> Option<Permutation> {
    if a.is_empty() || a.len() != b.len() || a.len() != clusters.len() {
        return None;
    }
    let clusters = Clusters::new(clusters.iter().copied());
    let sums = clusters.sums(a.iter().zip(b).map(|(a, b)| a - b));
    let observed: f64 = sums.iter().sum();
    let slack = ROUNDING * sums.iter().map(|sum| sum.abs()).sum::<f64>();
    let as_far = |sum: f64| sum.abs() >= observed.abs() - slack;
    let all = u32::try_from(sums.len()).ok().and_then(|n| 1u64.checked_shl(n));
    let difference = observed / a.len() as f64;
    if let Some(all) = all.filter(|all| *all <= patterns) {
        let hits = (0..all).into_par_iter().filter(|signs| as_far(flipped(&sums, *signs))).count();
        let p_value = hits as f64 / all as f64;
        return Some(Permutation { difference, p_value, patterns: all, exact: true });
    }
    let mut seeds = Source::new(seed);
    let seeds: Vec<u64> = (0..patterns).map(|_| seeds.bits()).collect();
    let hits = seeds.par_iter().filter(|seed| as_far(randomly_flipped(&sums, **seed))).count();
    let p_value = (hits as f64 + 1.0) / (patterns as f64 + 1.0);
    Some(Permutation { difference, p_value, patterns, exact: false })
}

/// The sum where the numbers at the set bits of `signs` count negatively.
fn flipped(sums: &[f64], signs: u64) -> f64 {
    let signed = |(at, sum): (usize, &f64)| if signs >> at & 1 == 1 { -sum } else { *sum };
    sums.iter().enumerate().map(signed).sum()
}

fn randomly_flipped(sums: &[f64], seed: u64) -> f64 {
    let mut source = Source::new(seed);
    sums.chunks(64).map(|sums| flipped(sums, source.bits())).sum()
}
