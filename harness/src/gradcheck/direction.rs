//! Directions to perturb an operand in: random signs on every entry, or a single entry.

use std::collections::BTreeSet;

use crate::ops::Source;

/// A direction in the space of one operand.
#[derive(Debug, Clone, PartialEq)]
pub enum Direction {
    /// ±1 on every entry (Rademacher): a wrong entry changes the product by all of its error, wherever it
    /// is, which no direction with small components does.
    Signs(Vec<bool>),
    /// One entry, by row-major index.
    Entry(usize),
}

impl Direction {
    /// Random signs.
    pub fn signs(source: &mut Source, len: usize) -> Self {
        Self::Signs((0..len).map(|_| source.bits() >> 63 == 0).collect())
    }

    /// `x + h·direction`.
    pub fn moved(&self, x: &[f64], h: f64) -> Vec<f64> {
        let mut moved = x.to_vec();
        match self {
            Self::Signs(signs) => {
                for (value, up) in moved.iter_mut().zip(signs) {
                    *value += if *up { h } else { -h };
                }
            }
            Self::Entry(at) => moved[*at] += h,
        }
        moved
    }

    /// The product with a gradient. A NaN anywhere makes it NaN.
    pub fn dot(&self, gradient: &[f64]) -> f64 {
        match self {
            Self::Signs(signs) => {
                gradient.iter().zip(signs).map(|(g, up)| if *up { *g } else { -*g }).sum()
            }
            Self::Entry(at) => gradient[*at],
        }
    }
}

/// Row-major indices of at most `count` entries: all of them where they are as few; else the edges (first
/// and last entry, ends of the first and last row), then one entry of each row in turn, at random.
pub fn entries(source: &mut Source, shape: &[usize], count: usize) -> Vec<usize> {
    let len: usize = shape.iter().product();
    if len <= count {
        return (0..len).collect();
    }
    let width = shape.last().copied().unwrap_or(1);
    let rows = len / width;
    let mut chosen = BTreeSet::from([0, len - 1, width - 1, len - width]);
    let wanted = count.max(chosen.len());
    let mut turn = 0;
    while chosen.len() < wanted {
        // Rows spread evenly over all, whether there are more of them than entries to choose or fewer.
        let row = if rows > wanted { source.below(rows) } else { turn % rows };
        chosen.insert(row * width + source.below(width));
        turn += 1;
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_entries_are_all_chosen_and_many_include_the_edges_and_each_row() {
        let mut source = Source::new(1);
        assert_eq!(entries(&mut source, &[2, 3], 6), [0, 1, 2, 3, 4, 5]);
        let chosen = entries(&mut source, &[10, 100], 24);
        assert_eq!(chosen.len(), 24);
        for edge in [0, 99, 900, 999] {
            assert!(chosen.contains(&edge), "{edge}");
        }
        let rows: BTreeSet<_> = chosen.iter().map(|at| at / 100).collect();
        assert_eq!(rows.len(), 10);
    }

    #[test]
    fn a_wrong_entry_moves_each_projection_by_its_whole_error() {
        let mut source = Source::new(2);
        let right = vec![0.25; 1000];
        let mut wrong = right.clone();
        wrong[617] += 0.5;
        for _ in 0..4 {
            let direction = Direction::signs(&mut source, 1000);
            let moved = direction.dot(&wrong) - direction.dot(&right);
            assert!((moved.abs() - 0.5).abs() < 1e-12);
        }
    }
}
