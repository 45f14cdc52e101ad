//! What can keep a comparison from being made. Each message names the side or file and what mends it.

use std::{io, path::PathBuf};

use super::worker::Trouble;
use crate::{
    composition::SpellingError,
    exit::ExitCode,
    stats::{Side, StatsError},
    store::{DumpError, StoreError},
};

/// A comparison that could not be made, or not ended.
#[derive(Debug, thiserror::Error)]
pub enum KlError {
    /// A request that cannot be honoured as written.
    #[error("{0}")]
    Usage(String),
    /// A composition that there is not.
    #[error(transparent)]
    Composition(#[from] SpellingError),
    /// A file of text or ids.
    #[error("{path}: {message}")]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// Two sides that do not speak of the same tokens.
    #[error("{what} differ: the teacher's are {teacher}, the student's {student}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// The teacher's.
        teacher: String,
        /// The student's.
        student: String,
    },
    /// The engine does not do what was asked.
    #[error("{who}: {message}")]
    Refused {
        /// Whose worker.
        who: String,
        /// The engine's words.
        message: String,
    },
    /// A worker is gone.
    #[error(
        "the worker of {who} is gone: {how}; what was scored is kept, --resume goes on from there"
    )]
    Crashed {
        /// Whose worker.
        who: String,
        /// `SIGSEGV`, `no answer in 600 s` ….
        how: String,
    },
    /// The record of the run.
    #[error(
        "cannot {action} {path}: {source}; what was scored is kept, --resume goes on from there"
    )]
    Record {
        /// `create`, `write`, `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A record that is not one.
    #[error("{path}: {message}; remove it and start anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// There is nothing to go on with.
    #[error("nothing to resume in {0}: no run of these sources, tokens and windows is there")]
    NothingToResume(PathBuf),
    /// Another process is at this run.
    #[error("another process writes {0}; wait for it to end")]
    Busy(PathBuf),
    /// The teacher store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A dump of another engine.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// Logits that are none.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

impl KlError {
    /// Any request that cannot be honoured.
    pub(super) fn usage(message: impl std::fmt::Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// A worker's trouble, with its side's name.
    pub(super) fn of(who: &str) -> impl Fn(Trouble) -> Self {
        let who = who.to_owned();
        move |trouble| match trouble {
            Trouble::Refused(message) => Self::Refused { who: who.clone(), message },
            Trouble::Gone(how) => Self::Crashed { who: who.clone(), how },
        }
    }

    /// The exit code of this error.
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Crashed { .. } => ExitCode::Crashed,
            Self::Store(StoreError::Damaged { .. } | StoreError::Schema { .. }) => ExitCode::Golden,
            Self::Record { .. }
            | Self::Damaged { .. }
            | Self::Store(StoreError::Io { .. } | StoreError::DiskFull { .. }) => {
                ExitCode::Internal
            }
            Self::Usage(_)
            | Self::Composition(_)
            | Self::Text { .. }
            | Self::Mismatch { .. }
            | Self::Refused { .. }
            | Self::NothingToResume(_)
            | Self::Busy(_)
            | Self::Dump(_)
            | Self::Stats(_)
            | Self::Store(_) => ExitCode::Usage,
        }
    }
}

/// `teacher` or `student`.
pub(super) const fn name(side: Side) -> &'static str {
    match side {
        Side::Teacher => "teacher",
        Side::Student => "student",
    }
}
