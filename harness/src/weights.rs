//! Digests of a model's folder, kept beside nothing and trusted never: recomputed when a file changes.

use std::{fs, path::Path};

use crate::model::ADAPTERS;
use mlx_parity_tensor::safetensors::{Checkpoint, SafetensorsError};

/// What identifies a model: its tensors and its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelDigests {
    /// Over names, dtypes, shapes and bytes of all tensors.
    pub weights: String,
    /// Of `config.json` and of the adapter's files where there is one, as bytes.
    pub config: String,
}

impl ModelDigests {
    /// Reads the folder.
    pub fn of(dir: &Path) -> Result<Self, SafetensorsError> {
        let weights = Checkpoint::open(dir)?.digest();
        // A folder without a readable config is refused by the engine with a better message.
        let read = |name: &str| fs::read(dir.join(name)).unwrap_or_default();
        let mut config = read("config.json");
        for name in ["adapter_config.json", "adapters.safetensors"] {
            config.extend(read(&format!("{ADAPTERS}/{name}")));
        }
        let config = crate::digest::of_bytes(&config);
        Ok(Self { weights, config })
    }
}
