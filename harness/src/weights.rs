//! Digests of a model's folder, kept beside nothing and trusted never: recomputed when a file changes.

use std::{fs, path::Path};

use mlx_parity_tensor::safetensors::{Checkpoint, SafetensorsError};

/// What identifies a model: its tensors and its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelDigests {
    /// Over names, dtypes, shapes and bytes of all tensors.
    pub weights: String,
    /// Of `config.json`, as bytes.
    pub config: String,
}

impl ModelDigests {
    /// Reads the folder.
    pub fn of(dir: &Path) -> Result<Self, SafetensorsError> {
        let weights = Checkpoint::open(dir)?.digest();
        // A folder without a readable config is refused by the engine with a better message.
        let config =
            crate::digest::of_bytes(&fs::read(dir.join("config.json")).unwrap_or_default());
        Ok(Self { weights, config })
    }
}
