//! Oracles are subprocesses: versioned JSON lines on stdin and stdout, tensors in safetensors files.

mod client;
mod freeze;
mod own;
mod protocol;

use std::path::PathBuf;

pub use self::{
    client::{Launch, Oracle},
    freeze::{Folders, FreezeError, denoise_request, freeze, prompt_wire},
    own::{COMPOSITION, freeze_own},
    protocol::{
        Answer, DenoiseAnswer, DenoiseRequest, DeviationAnswer, DeviationRequest, FreezeAnswer,
        FreezeRequest, Hello, InventoryAnswer, PROTOCOL, PromptWire, Request, TapRequest,
    },
};

/// The oracle could not be asked, or did not answer as agreed.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// Its interpreter or script is not there.
    #[error("oracle {name} is not installed: {path} is missing; run `cargo xtask setup`")]
    NotInstalled {
        /// `mlx-lm`.
        name: String,
        /// What is missing.
        path: PathBuf,
    },
    /// It could not be started.
    #[error("oracle {name}: cannot start {path}: {source}")]
    Start {
        /// The oracle.
        name: String,
        /// The program.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It ended before it answered.
    #[error("oracle {name} died before it answered ({status}){stderr}")]
    Died {
        /// The oracle.
        name: String,
        /// Exit status or signal.
        status: String,
        /// The last lines it logged.
        stderr: String,
    },
    /// It wrote something else than protocol lines on stdout.
    #[error("oracle {name} broke the protocol: wrote `{line}`, wanted one JSON object a line")]
    Garbage {
        /// The oracle.
        name: String,
        /// The start of the line.
        line: String,
    },
    /// It speaks another version, or answered another request.
    #[error("oracle {name} broke the protocol: {message}")]
    Protocol {
        /// The oracle.
        name: String,
        /// Found and wanted.
        message: String,
    },
    /// No answer in time.
    #[error("oracle {name} gave no answer in {seconds} s and was ended")]
    TimedOut {
        /// The oracle.
        name: String,
        /// The limit.
        seconds: u64,
    },
    /// It answered that it could not.
    #[error("oracle {name} refused: {kind}: {message}")]
    Refused {
        /// The oracle.
        name: String,
        /// Class of its error.
        kind: String,
        /// Its message.
        message: String,
    },
}
