//! Synthetic models: tiny random checkpoints that a config and a list of tensors stand for.
//!
//! `goldens/synthetic/<name>/config.json` is written by hand, `tensors.json` is asked once of mlx-lm's
//! own model class. Their weights come from a counter-based hash ([`Stream`]), so that only seeds and
//! digests are committed; `oracles/mlx_lm/synthetic.py` is the same generator in Python, and the
//! digests in `tensors.json` are its.
//!
//! Every tensor has a stream named after it, and the draw at an element's row-major index decides that
//! element alone ([`values`], [`packed`]).

mod adapter;
mod ask;
mod case_file;
mod hash;
pub mod inventory;
mod lane;
mod materialise;
pub mod packed;
mod prompt;
pub mod values;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use self::{
    ask::{AskError, ask},
    case_file::case_file,
    hash::Stream,
    inventory::{Entry, Inventory},
    lane::Lane,
    materialise::{materialise, tensors},
    prompt::{VOCABULARY, ids},
    values::Init,
};

/// Version of the generator; another one makes every materialised folder stale.
pub const GENERATOR: u32 = 1;

/// A synthetic model that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// A file or folder could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `write`, `create`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that is not as it should be.
    #[error("{path}: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Found and wanted.
        message: String,
    },
    /// The reference was not asked for the tensors yet.
    #[error("{path} is missing; `mlx-parity freeze {name}` asks mlx-lm for it")]
    NoInventory {
        /// The file.
        path: PathBuf,
        /// The model.
        name: String,
    },
    /// The config changed since the reference was asked.
    #[error("{path} was made from another config.json; ask again with `mlx-parity freeze {name}`")]
    OtherConfig {
        /// `tensors.json`.
        path: PathBuf,
        /// The model.
        name: String,
    },
    /// The generators disagree.
    #[error(
        "{path}: the weights of lane {lane} have digest {found}, the Python twin's are {wanted}; \
         the generators differ"
    )]
    OtherWeights {
        /// `tensors.json`.
        path: PathBuf,
        /// The lane.
        lane: &'static str,
        /// Ours.
        found: String,
        /// Theirs.
        wanted: String,
    },
    /// A tensor that cannot be.
    #[error(transparent)]
    Tensor(#[from] mlx_parity_tensor::TensorError),
    /// The weight file.
    #[error(transparent)]
    File(#[from] mlx_parity_tensor::safetensors::SafetensorsError),
}

impl SyntheticError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.into(), source }
    }

    fn invalid(path: &Path, message: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), message: message.into() }
    }
}

/// The folders in `goldens/synthetic`, by name; none where it is missing.
pub fn folders(dir: &Path) -> Result<Vec<(String, PathBuf)>, SyntheticError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| SyntheticError::io("read", dir, error))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| SyntheticError::io("read", dir, error))?.path();
        if path.is_dir() {
            found.push((path.file_name().unwrap_or_default().to_string_lossy().into(), path));
        }
    }
    found.sort();
    Ok(found)
}
