//! KL by place in the text.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::position::{Position, null_is_nan};
use super::sum::mean;

/// Positions at neighbouring places of their clusters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// First place, counted from 0 at the start of each cluster.
    pub from: usize,
    /// One past the last place.
    pub to: usize,
    /// Scored positions.
    pub positions: u64,
    /// Positions that agree.
    pub agree: u64,
    /// Mean KL, in nats; NaN (`null` in JSON) without scored positions.
    #[serde(deserialize_with = "null_is_nan")]
    pub mean: f64,
    /// Greatest KL.
    #[serde(deserialize_with = "null_is_nan")]
    pub max: f64,
}

/// The profile of `positions`, where `clusters` says of which prompt or window each is, in at most `bins` runs of equally
/// many places.
///
/// # Panics
/// When there is not one cluster for each position.
pub fn profile(positions: &[Position], clusters: &[u32], bins: usize) -> Vec<Profile> {
    assert_eq!(positions.len(), clusters.len(), "one cluster for each position");
    let mut next: HashMap<u32, usize> = HashMap::new();
    let place = |cluster: &u32| {
        let next = next.entry(*cluster).or_default();
        *next += 1;
        *next - 1
    };
    let places: Vec<usize> = clusters.iter().map(place).collect();
    let longest = places.iter().max().map_or(0, |last| last + 1);
    let width = longest.div_ceil(bins.max(1)).max(1);
    let mut kls = vec![Vec::new(); longest.div_ceil(width)];
    let mut agree = vec![0; kls.len()];
    for (position, place) in positions.iter().zip(places).filter(|(p, _)| p.is_scored()) {
        kls[place / width].push(position.kl);
        agree[place / width] += u64::from(position.agree);
    }
    let bin = |(at, (kls, agree)): (usize, (Vec<f64>, u64))| Profile {
        from: at * width,
        to: longest.min((at + 1) * width),
        positions: kls.len() as u64,
        agree,
        mean: mean(&kls),
        max: kls.iter().copied().fold(f64::NAN, f64::max),
    };
    kls.into_iter().zip(agree).enumerate().map(bin).collect()
}
