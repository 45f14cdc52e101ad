//! Why a search cannot be made.

use mlx_parity_tensor::safetensors::SafetensorsError;

use super::{dump::DumpError, report::SideName, script::ScriptError, side::SideError};
use crate::exit::ExitCode;

/// A search that ended without a verdict.
#[derive(Debug, thiserror::Error)]
pub enum BisectError {
    /// One of the two paths.
    #[error("{side}: {error}")]
    Side {
        /// Which.
        side: SideName,
        /// What is wrong.
        error: SideError,
    },
    /// What is run.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A dump, to read or to write.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// A file between the two.
    #[error(transparent)]
    File(#[from] SafetensorsError),
}

impl BisectError {
    /// The exit code it ends the program with.
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Side { error, .. } => match error {
                SideError::Refused(_) => ExitCode::Usage,
                SideError::Died(_) | SideError::Start(_) => ExitCode::Crashed,
                SideError::File(_) | SideError::Scratch(_) => ExitCode::Internal,
            },
            Self::Script(_) | Self::Dump(_) => ExitCode::Usage,
            Self::File(_) => ExitCode::Internal,
        }
    }
}
