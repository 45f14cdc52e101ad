//! Every check runs in a worker: this binary started again, one MLX thread, lines on its pipes.
//!
//! A worker that dies or hangs costs the case it was on, never the run.

#[cfg(feature = "engine")]
mod child;
mod pool;
mod process;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[cfg(feature = "engine")]
pub use self::child::serve;
pub(crate) use self::process::how_it_ended;
pub use self::{
    pool::{PoolOptions, run, run_groups},
    process::{AskError, Ended, Worker, WorkerError, probe},
};
use crate::{
    bisect::Walk, case::Case, fingerprint::Fingerprint, metal::Files, ops::Bound, row::Row,
};

/// One case, with all a worker needs to run it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The case.
    pub case: Case,
    /// What is checked, as tables group it.
    pub subject: String,
    /// Its numeric format, as tables show it.
    pub dtype: String,
    /// Files of a replay; ops need none.
    pub files: Option<ReplayFiles>,
    /// The model's folder, for a case that needs no golden.
    #[serde(default)]
    pub model: Option<PathBuf>,
    /// Where a Metal kernel and its compiler find their files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metal: Option<Files>,
    /// Bounds of an op's calls, or of a Metal kernel's launches, in order.
    #[serde(default)]
    pub bounds: Vec<Bound>,
    /// Remarks that go into every row.
    pub notes: Vec<String>,
    /// A deliberate fault of the engine, for tests of the harness.
    pub fault: Option<String>,
}

/// Where a replay finds its model and its golden.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayFiles {
    /// The model's folder.
    pub model: PathBuf,
    /// The golden's folder.
    pub golden: PathBuf,
    /// The folder of the model that drafts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<PathBuf>,
}

/// What the parent tells a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Run a case.
    Run(Box<Job>),
    /// Play the trajectory of a case and write it to a file, for its golden.
    Freeze {
        /// The case.
        job: Box<Job>,
        /// The safetensors file to write.
        out: PathBuf,
    },
    /// Replay a case up to a step and write the intermediates of that step to a file.
    Tap {
        /// The case.
        job: Box<Job>,
        /// 0 is the prefill, 1 the first decode step; of denoised canvases, 1 is the first of all steps.
        step: usize,
        /// The safetensors file to write.
        out: PathBuf,
    },
    /// Run ids along a path and write what they give to a file.
    Walk(Box<Walk>),
}

/// What a worker tells the parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// First line: where this worker computes.
    Hello(Fingerprint),
    /// The engine itself is not usable.
    Broken(String),
    /// A check ended.
    Row(Box<Row>),
    /// The case is complete.
    Done,
}
