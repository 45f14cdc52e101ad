//! One file an architecture: its `config.json`, read strictly, to a [`Spec`].

mod gemma3_text;
mod llama;
pub(in crate::model) mod qwen3;
mod shared;

use super::spec::Spec;
use crate::config::ConfigFile;
use crate::error::EngineError;

/// One architecture of the universal network.
pub(in crate::model) struct Arch {
    /// Its `model_type`.
    pub(in crate::model) model_type: &'static str,
    /// The keys its reader knows.
    pub(in crate::model) keys: fn() -> Vec<&'static str>,
    /// Reads its config.
    pub(in crate::model) spec: fn(&ConfigFile) -> Result<Spec, EngineError>,
}

/// Every architecture of the universal network, by name.
pub(in crate::model) const ARCHS: &[Arch] = &[gemma3_text::ARCH, llama::ARCH, qwen3::ARCH];
