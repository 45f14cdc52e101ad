//! Positions of a run in a few numbers.

use serde::{Deserialize, Serialize};

use super::{options::Statistics, windows::Window};
use crate::stats::{Position, Profile, Summary, SummaryOptions, profile};

/// Fewest clusters that an interval should stand on.
const CLUSTERS: usize = 20;
/// Shortest block of positions.
const SHORTEST: usize = 16;

/// What is drawn again and again to see how numbers spread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clusters {
    /// Windows, or blocks of so many neighbouring positions of one window.
    pub block: Option<usize>,
    /// How many there are.
    pub count: usize,
    /// That of each position.
    #[serde(skip)]
    pub of: Vec<u32>,
}

/// Windows as clusters, where there are enough of them; else blocks of neighbouring positions, as long as
/// they can be for as many clusters (a block bootstrap: Künsch, "The jackknife and the bootstrap for
/// general stationary observations", 1989, without overlap).
pub(super) fn clusters(windows: &[Window], window: usize) -> Clusters {
    if windows.len() >= CLUSTERS {
        let of = numbered(windows, usize::MAX);
        return Clusters { block: None, count: windows.len(), of };
    }
    let positions: usize = windows.iter().map(|window| window.scored.len()).sum();
    let block = (positions / CLUSTERS).max(SHORTEST).min(window.max(1));
    let of = numbered(windows, block);
    let count = of.last().map_or(0, |last| *last as usize + 1);
    Clusters { block: Some(block), count, of }
}

fn numbered(windows: &[Window], block: usize) -> Vec<u32> {
    let (mut of, mut next) = (Vec::new(), 0);
    for window in windows {
        let length = window.scored.len();
        of.extend((0..length).map(|at| next + (at / block) as u32));
        next += length.div_ceil(block) as u32;
    }
    of
}

/// Sums up, a position being decided whose margin is above `noise`.
pub(super) fn summary(
    positions: &[Position],
    clusters: &Clusters,
    noise: f64,
    statistics: &Statistics,
) -> Summary {
    let options = SummaryOptions {
        resamples: statistics.resamples,
        seed: statistics.seed,
        level: statistics.level,
        noise_margin: noise,
        ..SummaryOptions::default()
    };
    Summary::of(positions, &clusters.of, &options)
}

/// By place among the scored positions of a window.
pub(super) fn by_place(positions: &[Position], windows: &[Window], bins: usize) -> Vec<Profile> {
    profile(positions, &numbered(windows, usize::MAX), bins)
}

#[cfg(test)]
mod tests {
    use super::super::windows::{Convention, Cut};
    use super::*;

    fn cut(window: usize, tokens: usize) -> Vec<Window> {
        Cut { window, convention: Convention::Every, documents: vec![tokens] }.windows()
    }

    #[test]
    fn many_windows_are_the_clusters() {
        let found = clusters(&cut(10, 206), 10);
        assert_eq!((found.block, found.count), (None, 21));
        assert_eq!(found.of[..11], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn of_few_windows_blocks_are_and_none_crosses_a_window() {
        let found = clusters(&cut(100, 151), 100);
        assert_eq!((found.block, found.count), (Some(16), 7 + 4));
        assert_eq!((found.of[95], found.of[96], found.of[100]), (5, 6, 7));
        assert_eq!(found.of.len(), 150);
    }
}
