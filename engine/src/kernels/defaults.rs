//! What the accepted ledger turns on, here.

use mlx_parity_kernels::{Call, Candidate};

use crate::error::EngineError;
use crate::runtime::runtime_info;

/// The place that decisions are made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// `cpu-x86_64`, `metal`, `cuda`.
    pub backend: String,
    /// The chip's own name.
    pub chip: String,
    /// Version of MLX.
    pub mlx: String,
}

/// This process's place.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn here() -> Result<Here, EngineError> {
    let info = runtime_info()?;
    let backend = match info.backend.as_str() {
        "cpu" => format!("cpu-{}", std::env::consts::ARCH),
        other => other.to_owned(),
    };
    Ok(Here { backend, chip: chip(), mlx: info.mlx_version })
}

fn chip() -> String {
    "unknown".to_owned()
}

/// Whether the accepted ledger promotes a kernel for a call.
pub(super) fn promotes(_candidate: &dyn Candidate, _call: &Call<'_>) -> Result<bool, EngineError> {
    Ok(false)
}
