//! What decides a teacher's logits.

use std::{fs, io};

use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use crate::{digest, fingerprint::Fingerprint};

/// Everything that decides the logits of an entry, and their shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Digest of the tensors, [`crate::weights::ModelDigests::weights`].
    pub weights: String,
    /// Digest of the configuration, [`crate::weights::ModelDigests::config`].
    pub config: String,
    /// How the logits are computed, in one canonical text: caches, prefill split, batch, route of attention, kernels.
    pub composition: String,
    /// Where.
    pub fingerprint: Fingerprint,
    /// By which build of the engine, [`revision`].
    pub engine: String,
    /// The token ids that are read.
    pub ids: Vec<u32>,
    /// How they are cut into windows and which positions give a row, in one canonical text.
    pub windows: String,
    /// Element type of the logits.
    pub dtype: Dtype,
    /// Rows of logits, one for each scored position.
    pub rows: usize,
    /// Values in a row.
    pub vocab: usize,
}

impl Key {
    /// The entry's name: 64 hexadecimal digits, the SHA-256 of the key as JSON.
    pub fn digest(&self) -> String {
        let json = serde_json::to_vec(self).expect("a key is plain data");
        digest::of_bytes(&json).trim_start_matches("sha256:").to_owned()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.vocab * self.dtype.size()
    }
}

/// The revision of this build: its version and the SHA-256 of the running program.
///
/// # Errors
/// The program's own file cannot be read.
pub fn revision() -> io::Result<String> {
    let program = fs::read(std::env::current_exe()?)?;
    Ok(format!("{} {}", env!("CARGO_PKG_VERSION"), digest::of_bytes(&program)))
}
