//! Ways to the same logits.

use serde::{Deserialize, Serialize};

/// One other way, and how near its answer must come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// The way.
    pub route: Route,
    /// What its answer is held to.
    pub relation: Relation,
}

/// How the prompt is run. What each is compared with is in its description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Route {
    /// The whole prompt but its last token in one call, twice: what other ways are compared with does
    /// not change from one decoder to the next.
    Again,
    /// Prefill in chunks of this many tokens (1: one by one), against the whole prompt but its last
    /// token in one call.
    Chunk(usize),
    /// The first `at` tokens, `tokens` others, which are trimmed again, then the rest; against the
    /// same without the detour.
    Trim {
        /// Tokens before the detour.
        at: usize,
        /// Tokens of the detour.
        tokens: usize,
    },
    /// A trim behind `at` tokens, which must be refused since a window has wrapped, and change nothing.
    RefusedTrim {
        /// Tokens before the trim.
        at: usize,
    },
    /// The caches saved after `at` tokens, loaded into a fresh decoder, then the rest; against the
    /// same decoder going on.
    Save {
        /// Tokens before the save.
        at: usize,
    },
    /// Every slot of the caches that no later token may attend to filled with NaN after `at` tokens, then
    /// the rest; against the same without.
    Poison {
        /// Tokens before.
        at: usize,
    },
    /// Calls that must be refused after `at` tokens (an id out of the vocabulary in a step and in a
    /// prompt, no ids, one row too many), then the rest; against the same without.
    Refusal {
        /// Tokens before.
        at: usize,
    },
    /// Steps behind `at` tokens run in compiled segments, against the same steps run eagerly. A save, a
    /// load and further steps follow.
    Compiled {
        /// Tokens before.
        at: usize,
    },
    /// A compiled step behind `at` tokens that fails, at every third point where one can, each time followed
    /// by the same step run eagerly; then three more. Against steps none of which failed.
    FailedStep {
        /// Tokens before.
        at: usize,
    },
    /// `tokens` others behind `at` in one call, taken back; then the rest. Against the same without.
    Rollback {
        /// Tokens before.
        at: usize,
        /// Tokens of the call.
        tokens: usize,
    },
    /// Greedy ids with so many guesses at a time, of the model itself and of the model behind another
    /// context, against the greedy ids without.
    Speculate(usize),
    /// Four requests of other lengths that join a batch one behind the other and two at once, of which one
    /// leaves and goes on alone; each against the request alone.
    JoinAndLeave,
    /// A decoder of the case's composition must be refused.
    RefusedComposition,
    /// This many different prompts in one batch, each row against the same prompt alone.
    Batch(usize),
}

impl Route {
    /// The name within the case: `chunk-16`, `trim-3-at-20`, `batch-2`.
    pub fn name(self) -> String {
        match self {
            Self::Again => "again".to_owned(),
            Self::JoinAndLeave => "join-and-leave".to_owned(),
            Self::RefusedComposition => "refused-composition".to_owned(),
            Self::Chunk(1) => "one-by-one".to_owned(),
            Self::Chunk(size) => format!("chunk-{size}"),
            Self::Trim { at, tokens } => format!("trim-{tokens}-at-{at}"),
            Self::RefusedTrim { at } => format!("refused-trim-at-{at}"),
            Self::Save { at } => format!("save-at-{at}"),
            Self::Compiled { at } => format!("compiled-at-{at}"),
            Self::FailedStep { at } => format!("failed-step-at-{at}"),
            Self::Rollback { at, tokens } => format!("rollback-{tokens}-at-{at}"),
            Self::Speculate(guesses) => format!("speculate-{guesses}"),
            Self::Poison { at } => format!("poison-at-{at}"),
            Self::Refusal { at } => format!("refusal-at-{at}"),
            Self::Batch(rows) => format!("batch-{rows}"),
        }
    }

    /// The least number of prompt tokens that it takes.
    pub fn tokens(self) -> usize {
        match self {
            Self::Again
            | Self::RefusedComposition
            | Self::JoinAndLeave
            | Self::Chunk(_)
            | Self::Batch(_)
            | Self::Speculate(_) => 2,
            Self::Trim { at, .. }
            | Self::Rollback { at, .. }
            | Self::RefusedTrim { at }
            | Self::Save { at }
            | Self::Poison { at }
            | Self::Refusal { at }
            | Self::Compiled { at }
            | Self::FailedStep { at } => at + 1,
        }
    }

    /// Its numbers.
    pub fn numbers(self) -> Vec<usize> {
        match self {
            Self::Again | Self::JoinAndLeave | Self::RefusedComposition => Vec::new(),
            Self::Chunk(number) | Self::Batch(number) | Self::Speculate(number) => vec![number],
            Self::Trim { at, tokens } | Self::Rollback { at, tokens } => vec![at, tokens],
            Self::RefusedTrim { at }
            | Self::Save { at }
            | Self::Poison { at }
            | Self::Refusal { at }
            | Self::Compiled { at }
            | Self::FailedStep { at } => vec![at],
        }
    }
}

/// The bound of [`Relation::Near`], in ulp of the largest logit: six bits of a 24-bit fraction.
pub const NEAR: f64 = 64.0;

/// What two ways have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Every bit.
    Bits,
    /// Every logit within [`NEAR`]: where MLX sums the same addends in another order and the model has no
    /// float64 forward.
    Near,
    /// Their error against the float64 forward: see [`Budget`](super::Budget).
    Close,
}
