//! The worst elements of a tensor, a few of very many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::compare::Distance;

/// How bad an element is: what has no error is worse than any error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    apart: u8,
    error: u64,
}

impl Rank {
    /// By distance.
    pub(super) fn of_distance(distance: Distance) -> Self {
        match distance {
            Distance::Ulps(error) => Self { apart: 0, error },
            Distance::Sign => Self { apart: 1, error: 0 },
            Distance::Infinite => Self { apart: 2, error: 0 },
            Distance::Nan => Self { apart: 3, error: 0 },
        }
    }

    /// By absolute error, which must be finite.
    pub(super) fn of_error(error: f64) -> Self {
        // Bits of numbers that are not negative order like the numbers.
        Self { apart: 0, error: error.abs().to_bits() }
    }
}

/// At most `limit` elements, the worst of all that were offered; of equally bad ones the first.
#[derive(Debug, Clone)]
pub(super) struct Worst {
    limit: usize,
    /// The least bad on top.
    kept: BinaryHeap<Reverse<(Rank, Reverse<usize>)>>,
}

impl Worst {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, kept: BinaryHeap::new() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether elements no worse than `rank` could still be kept.
    pub(super) fn wants(&self, rank: Rank) -> bool {
        self.limit > 0
            && (self.kept.len() < self.limit
                || self.kept.peek().is_some_and(|Reverse((least, _))| rank >= *least))
    }

    pub(super) fn offer(&mut self, rank: Rank, index: usize) {
        if !self.wants(rank) {
            return;
        }
        self.kept.push(Reverse((rank, Reverse(index))));
        if self.kept.len() > self.limit {
            self.kept.pop();
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for Reverse((rank, Reverse(index))) in other.kept {
            self.offer(rank, index);
        }
    }

    /// Indices, the worst first.
    pub(super) fn indices(&self) -> Vec<usize> {
        let mut kept: Vec<_> = self.kept.iter().map(|Reverse(element)| *element).collect();
        kept.sort_unstable_by_key(|element| Reverse(*element));
        kept.into_iter().map(|(_, Reverse(index))| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nan_is_worse_than_any_error() {
        assert!(Rank::of_distance(Distance::Nan) > Rank::of_error(f64::MAX));
        assert!(Rank::of_distance(Distance::Sign) > Rank::of_distance(Distance::Ulps(u64::MAX)));
        assert!(Rank::of_error(-2.0) > Rank::of_error(1.0));
    }

    proptest! {
        #[test]
        fn the_kept_are_the_head_of_a_sort(
            errors in proptest::collection::vec(0u64..20, 0..100),
            limit in 0usize..12,
            split: proptest::sample::Index,
        ) {
            let at = if errors.is_empty() { 0 } else { split.index(errors.len()) };
            let rank = |error: &u64| Rank::of_distance(Distance::Ulps(*error));
            let (mut early, mut late) = (Worst::new(limit), Worst::new(limit));
            errors[at..].iter().enumerate().for_each(|(i, e)| late.offer(rank(e), at + i));
            errors[..at].iter().enumerate().for_each(|(i, e)| early.offer(rank(e), i));
            late.merge(early);
            let mut sorted: Vec<usize> = (0..errors.len()).collect();
            sorted.sort_by_key(|i| (Reverse(errors[*i]), *i));
            sorted.truncate(limit);
            prop_assert_eq!(late.indices(), sorted);
        }
    }
}
