//! Which positions of a sequence a query attends to, by definition: causal attention (Vaswani et al.,
//! 2017), a sliding window (Beltagy et al., 2020) and positions that stay in sight (Xiao et al., 2023,
//! "attention sinks"; `keep` of `RotatingKVCache`).

/// What a query at a position of its own sequence sees. Positions below zero are padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Positions that a query sees at most, its own and the kept ones included.
    pub window: Option<i64>,
    /// First positions of the sequence that every later query sees.
    pub keep: i64,
}

impl Sight {
    /// Whether the query at a position attends to the key at another; neither is padding.
    pub fn sees(self, query: i64, key: i64) -> bool {
        if key < 0 || query < 0 || key > query {
            return false;
        }
        let Some(window) = self.window else { return true };
        key < self.keep || query - key < window - self.keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(sight: Sight, query: i64) -> Vec<i64> {
        (-3..12).filter(|&key| sight.sees(query, key)).collect()
    }

    #[test]
    fn a_window_is_exactly_as_wide_as_it_says() {
        assert_eq!(seen(Sight::default(), 4), [0, 1, 2, 3, 4]);
        assert_eq!(seen(Sight { window: Some(3), keep: 0 }, 9), [7, 8, 9]);
        assert_eq!(seen(Sight { window: Some(4), keep: 2 }, 9), [0, 1, 8, 9]);
        assert_eq!(seen(Sight { window: Some(4), keep: 2 }, 2), [0, 1, 2]);
        assert!(seen(Sight { window: Some(3), keep: 0 }, -1).is_empty());
    }
}
