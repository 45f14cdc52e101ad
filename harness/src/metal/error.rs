//! Why a launch could not be made or judged.

use std::path::PathBuf;

use mlx_parity_msl_emu::EmuError;
use mlx_parity_tensor::{TensorError, safetensors::SafetensorsError};

use super::ExtentError;
use crate::{compare::error::LengthMismatch, ops::SuiteError};

/// A launch without a verdict.
#[derive(Debug, thiserror::Error)]
pub enum MetalError {
    /// A source that cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// An extent.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// An input that contradicts itself.
    #[error("input `{name}`: {error}")]
    Input {
        /// The input.
        name: String,
        /// What is wrong.
        error: TensorError,
    },
    /// A tensor of a file with another form than the case says.
    #[error("{path}: `{name}` is {found}, wanted {wanted}")]
    Form {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its dtype and shape.
        found: String,
        /// Those of the case.
        wanted: String,
    },
    /// A file of tensors.
    #[error(transparent)]
    File(#[from] SafetensorsError),
    /// The reference.
    #[error(transparent)]
    Reference(#[from] SuiteError),
    /// The emulator.
    #[error("{}", chain(.0))]
    Emulator(EmuError),
    /// An output and a reference of different lengths.
    #[error(transparent)]
    Length(#[from] LengthMismatch),
    /// An op whose reference gives another number of outputs.
    #[error("ref64 gives {found} outputs, the kernel has {wanted}")]
    Outputs {
        /// Of the reference.
        found: usize,
        /// Of the kernel.
        wanted: usize,
    },
}

/// The error with its causes: the emulator says the file in one and what happened to it in the next.
fn chain(error: &EmuError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl From<EmuError> for MetalError {
    fn from(error: EmuError) -> Self {
        Self::Emulator(error)
    }
}
