//! The likeliest tokens of a row.

use super::block::{BLOCK, Block, Row};

/// The tokens of a row that are not below its k-th greatest logit.
pub(super) struct Top {
    /// The k-th greatest logit, equals counted apart; below all, where there are fewer than k.
    pub(super) threshold: f64,
    /// Tokens that are not below it, in ascending order.
    pub(super) tokens: Vec<u32>,
    /// The first token with the greatest logit.
    pub(super) first: u32,
    /// The greatest logit.
    pub(super) greatest: f64,
    /// The second greatest, which is as great in a tie.
    pub(super) second: f64,
}

impl Top {
    /// Of a row whose logits are all finite; `maxima` are the greatest of its blocks.
    pub(super) fn of(row: Row<'_>, maxima: &[f64], k: usize) -> Self {
        // The k-th greatest logit is not below the k-th greatest maximum.
        let floor = Greatest::of(k.max(2), maxima.iter().copied()).least();
        let (mut found, mut block) = (Vec::new(), Block::new());
        for (at, _) in maxima.iter().enumerate().filter(|(_, max)| **max >= floor) {
            let logits = row.block(at, &mut block).iter().enumerate();
            let high = logits.filter(|(_, x)| **x >= floor);
            found.extend(high.map(|(token, x)| ((at * BLOCK + token) as u32, *x)));
        }
        let [greatest, second] = Greatest::of(2, found.iter().map(|(_, x)| *x)).first_two();
        let threshold = Greatest::of(k, found.iter().map(|(_, x)| *x)).least();
        let first = found.iter().find(|(_, x)| *x == greatest).map_or(0, |(token, _)| *token);
        found.retain(|(_, x)| *x >= threshold);
        let tokens = found.into_iter().map(|(token, _)| token).collect();
        Self { threshold, tokens, first, greatest, second }
    }
}

/// The k greatest of some numbers, greatest first.
struct Greatest {
    k: usize,
    kept: Vec<f64>,
}

impl Greatest {
    fn of(k: usize, numbers: impl Iterator<Item = f64>) -> Self {
        let mut kept = Vec::with_capacity(k.min(BLOCK) + 1);
        for x in numbers {
            if kept.len() < k || kept.last().is_some_and(|least| x > *least) {
                let at = kept.partition_point(|y| *y >= x);
                kept.insert(at, x);
                kept.truncate(k);
            }
        }
        Self { k, kept }
    }

    /// The k-th greatest, or less than any number where there are fewer.
    fn least(&self) -> f64 {
        self.kept.get(self.k - 1).copied().unwrap_or(f64::NEG_INFINITY)
    }

    fn first_two(&self) -> [f64; 2] {
        [0, 1].map(|at| self.kept.get(at).copied().unwrap_or(f64::NEG_INFINITY))
    }
}
