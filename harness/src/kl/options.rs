//! What to compare, and how.

use std::{fmt, path::PathBuf, time::Duration};

use super::{verdict::Thresholds, windows::Convention};
use crate::composition::Spelled;

/// A side, with models found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A model that the engine runs.
    Engine {
        /// As it was named.
        name: String,
        /// Its folder.
        folder: PathBuf,
        /// How it computes.
        composition: Spelled,
    },
    /// Logits in the teacher store.
    Stored {
        /// The beginning of an entry's digest.
        digest: String,
    },
    /// Logits of another engine.
    Dump {
        /// The file.
        file: PathBuf,
    },
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine { name, composition, .. } => write!(f, "{name}@{composition}"),
            Self::Stored { digest } => write!(f, "store:{}", &digest[..digest.len().min(12)]),
            Self::Dump { file } => write!(f, "dump:{}", file.display()),
        }
    }
}

/// A comparison.
#[derive(Debug, Clone)]
pub struct Options {
    /// The distribution that divergences are measured from.
    pub teacher: Asked,
    /// The distribution that is measured.
    pub student: Asked,
    /// Files with text, a document each.
    pub texts: Vec<PathBuf>,
    /// A file with ids, in the place of text.
    pub ids: Option<PathBuf>,
    /// Most tokens to read.
    pub max_tokens: Option<usize>,
    /// Tokens of a window; by default as stored logits were cut, else [`DEFAULT_WINDOW`].
    pub window: Option<usize>,
    /// Which positions are scored; by default as stored logits were, else every one.
    pub convention: Option<Convention>,
    /// Tokens of a model call; by default what [`super::plan::CALL_BYTES`] of logits hold.
    pub call: Option<usize>,
    /// Least positions of a control lane.
    pub control: usize,
    /// What should be as the teacher is: a control lane each.
    pub beside: Vec<Asked>,
    /// The teacher store's folder.
    pub store: PathBuf,
    /// Bytes it may hold.
    pub budget: u64,
    /// Take the teacher's logits from the store, and leave them there.
    pub keep: bool,
    /// What the verdict is held to.
    pub thresholds: Thresholds,
    /// How the numbers are found.
    pub statistics: Statistics,
    /// The binary that has the `logits-worker` command.
    pub program: PathBuf,
    /// Limit for one answer of a worker.
    pub limit: Duration,
    /// Where runs are recorded.
    pub record: PathBuf,
    /// Take up an earlier run of the same comparison.
    pub resume: bool,
    /// The command line, for the report.
    pub command: Vec<String>,
}

/// Tokens of a window where nobody says otherwise.
pub const DEFAULT_WINDOW: usize = 512;

/// How the numbers are found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Tokens whose overlap is counted.
    pub top_k: usize,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Their seed.
    pub seed: u64,
    /// Level of confidence.
    pub level: f64,
}
