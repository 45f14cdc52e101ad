//! Random sequences of operations on a decoder, each from its seed alone.

use serde::{Deserialize, Serialize};

use crate::synthetic::Stream;

/// Sequences with consecutive seeds; each is a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fuzz {
    /// The first seed.
    pub first: u64,
    /// Seeds from it on.
    pub sequences: u64,
    /// Operations of a sequence.
    pub operations: usize,
    /// What a trim can take back.
    pub forgets: Forgets,
    /// Whether requests join and leave a batch instead.
    #[serde(default)]
    pub batch: bool,
}

/// One operation on a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchOperation {
    /// A request with a prompt of so many tokens.
    Join(usize),
    /// Two requests at once.
    JoinTwo(usize, usize),
    /// One token of each request, and of each that has left.
    Step,
    /// A request leaves and goes on alone.
    Leave(usize),
    /// One that is alone comes back.
    Return(usize),
}

/// When newest tokens cannot be forgotten any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Forgets {
    /// Every layer keeps every token: never.
    Nothing,
    /// Once a window of so many tokens is full.
    Window(usize),
    /// A layer keeps only what all tokens add up to: always.
    Everything,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// So many tokens as a prompt.
    Prefill(usize),
    /// One token.
    Decode,
    /// So many of the newest tokens are forgotten, or the trim is refused and changes nothing.
    Trim(usize),
    /// So many others in one call, taken back; of a single row only.
    Rollback(usize),
    /// The caches are written to a file.
    Save,
    /// Caches of the last file, where there is one, in a fresh decoder.
    Load,
    /// A call that is refused.
    Refused,
    /// NaN in every slot that is out of sight.
    Poison,
}

/// A sequence of operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Sequences side by side in the decoder.
    pub rows: usize,
    /// Tokens of a prompt that one call takes.
    pub step: usize,
    /// The operations, in order; the last one decodes, so that all that is there is looked at.
    pub operations: Vec<Operation>,
    stream: Stream,
}

/// Tokens a sequence may grow to: three windows of 16.
const LONGEST: usize = 48;
/// Draws before those of tokens.
const TOKENS: u64 = 1 << 32;
/// Draws that say where answers are looked at.
const LOOKS: u64 = 1 << 16;
/// Of so many answers, but for the last, one is looked at: each costs a run from scratch.
const ANSWERS: u64 = 12;

impl Fuzz {
    /// The seeds.
    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        self.first..self.first + self.sequences
    }

    /// The operations on a batch of a seed; the first takes a request in, and the last steps, so that
    /// there is always an answer.
    pub fn batch_operations(&self, seed: u64) -> Vec<BatchOperation> {
        let stream = Stream::named(&format!("batch {seed}"));
        let draw = |at: u64, below: u64| (stream.draw(at) % below) as usize;
        let operation = |at: u64| {
            let prompt = |nth| 1 + draw(4 * at + nth, 20);
            match draw(4 * at, 16) {
                0..2 => BatchOperation::Join(prompt(1)),
                2 => BatchOperation::JoinTwo(prompt(1), prompt(2)),
                3 => BatchOperation::Leave(draw(4 * at + 1, 8)),
                4 => BatchOperation::Return(draw(4 * at + 1, 8)),
                _ => BatchOperation::Step,
            }
        };
        let first = BatchOperation::Join(1 + draw(u64::MAX, 20));
        let drawn = (0..self.operations as u64).map(operation);
        std::iter::once(first).chain(drawn).chain([BatchOperation::Step]).collect()
    }

    /// The tokens of a request of a batch.
    pub fn tokens(&self, seed: u64, request: usize, vocabulary: usize) -> Vec<u32> {
        let stream = Stream::named(&format!("batch {seed}, request {request}"));
        (0..LONGEST as u64).map(|at| (stream.draw(at) % vocabulary as u64) as u32).collect()
    }

    /// The sequence of a seed.
    pub fn sequence(&self, seed: u64) -> Sequence {
        let stream = Stream::named(&format!("operations {seed}"));
        let draw = |at: u64, below: u64| (stream.draw(at) % below) as usize;
        let operations = (0..self.operations as u64).map(|at| {
            let amount = |below| 1 + draw(2 * at + 3, below);
            match draw(2 * at + 2, 16) {
                0..4 => Operation::Prefill(amount(9)),
                4..9 => Operation::Decode,
                9..11 => Operation::Trim(amount(6)),
                11 => Operation::Rollback(amount(6)),
                12 => Operation::Save,
                13 => Operation::Load,
                14 => Operation::Refused,
                _ => Operation::Poison,
            }
        });
        // Something to work on.
        let first = Operation::Prefill(1 + draw(1, 24));
        Sequence {
            rows: 1 + draw(0, 3),
            step: 1 + draw(TOKENS - 1, 20),
            operations: std::iter::once(first)
                .chain(operations)
                .chain([Operation::Decode])
                .collect(),
            stream,
        }
    }
}

impl Sequence {
    /// The id of a row that operation `at` puts at `offset` of its tokens.
    pub fn id(&self, at: usize, row: usize, offset: usize, vocabulary: usize) -> u32 {
        let draw = TOKENS + ((at * self.rows + row) * LONGEST + offset) as u64;
        (self.stream.draw(draw) % vocabulary as u64) as u32
    }

    /// Tokens that operation `at` adds to rows of a length; none where they would get too long.
    pub fn tokens(&self, at: usize, length: usize) -> usize {
        let count = match self.operations[at] {
            Operation::Prefill(count) => count,
            Operation::Decode => 1,
            _ => 0,
        };
        if length + count > LONGEST && !self.is_last(at) { 0 } else { count }
    }

    /// The row whose answer to operation `at` is looked at, if one is: always to the last, and to what is
    /// lost next, as other caches are loaded.
    pub fn looks(&self, at: usize) -> Option<usize> {
        let lost = self.operations.get(at + 1) == Some(&Operation::Load);
        let draw = self.stream.draw(LOOKS + at as u64);
        let drawn = draw.is_multiple_of(ANSWERS);
        (lost || drawn || self.is_last(at)).then(|| (draw / ANSWERS) as usize % self.rows)
    }

    fn is_last(&self, at: usize) -> bool {
        at + 1 == self.operations.len()
    }
}

impl Forgets {
    /// Whether rows of a length can be trimmed.
    pub fn trims(self, length: usize) -> bool {
        match self {
            Self::Nothing => true,
            Self::Window(window) => length < window,
            Self::Everything => false,
        }
    }
}

impl std::fmt::Display for BatchOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Join(prompt) => write!(f, "join {prompt}"),
            Self::JoinTwo(one, other) => write!(f, "join {one} and {other}"),
            Self::Step => f.write_str("step"),
            Self::Leave(which) => write!(f, "leave {which}"),
            Self::Return(which) => write!(f, "return {which}"),
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Prefill(count) => write!(f, "prefill {count}"),
            Self::Decode => f.write_str("decode"),
            Self::Trim(count) => write!(f, "trim {count}"),
            Self::Rollback(count) => write!(f, "rollback {count}"),
            Self::Save => f.write_str("save"),
            Self::Load => f.write_str("load"),
            Self::Refused => f.write_str("refused call"),
            Self::Poison => f.write_str("poison"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const FUZZ: Fuzz =
        Fuzz { first: 1, sequences: 200, operations: 12, forgets: Forgets::Nothing, batch: false };

    #[test]
    fn a_seed_is_a_sequence_and_no_other() {
        let all: Vec<_> = FUZZ.seeds().map(|seed| FUZZ.sequence(seed)).collect();
        assert_eq!(all[6], FUZZ.sequence(7));
        let different: HashSet<String> = all.iter().map(|one| format!("{one:?}")).collect();
        assert_eq!(different.len(), 200);
    }

    #[test]
    fn every_operation_is_drawn_and_lengths_cross_windows() {
        let (mut kinds, mut longest) = (HashSet::new(), 0);
        for seed in FUZZ.seeds() {
            let mut length = 0;
            let sequence = FUZZ.sequence(seed);
            for (at, operation) in sequence.operations.iter().enumerate() {
                kinds.insert(std::mem::discriminant(operation));
                length += sequence.tokens(at, length);
            }
            longest = longest.max(length);
        }
        assert_eq!(kinds.len(), 8);
        assert!(longest > 40, "{longest}");
    }
}
