//! The manifest of a golden: who answered, where, from which weights, in which composition.

use std::collections::BTreeMap;

use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// Version of the golden format; a reader refuses any other.
pub const GOLDEN_SCHEMA: u32 = 1;

/// Which oracle, in which version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OracleVersion {
    /// `mlx-lm`.
    pub name: String,
    /// Versions of it and of what it stands on, by package.
    pub packages: BTreeMap<String, String>,
}

/// How an answer was computed. Answers of different compositions are never compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Composition {
    /// Cache class of each layer, `plain`, `rotating(32)`.
    pub cache: Vec<String>,
    /// Prompt tokens per prefill call; the last one goes alone.
    pub prefill_step: usize,
    /// Rows per forward.
    pub batch: usize,
    /// Attention route, `mx.fast.scaled_dot_product_attention`.
    pub attention: String,
    /// Fused kernels in use, by lever.
    pub kernels: Vec<String>,
    /// How canvases were denoised, for a diffusion model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denoising: Option<Denoising>,
}

/// How canvases were denoised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Denoising {
    /// The sampler with its bound, `entropy-bound(0.1)`.
    pub sampler: String,
    /// Temperature of the samples, `0.7`.
    pub temperature: String,
    /// Tokens of each canvas.
    pub canvases: Vec<usize>,
    /// Steps each canvas took.
    pub steps: Vec<usize>,
}

/// One frozen tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorEntry {
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
    /// Digest as [`mlx_parity_tensor::HostTensor::digest`] gives it.
    pub digest: String,
}

/// The manifest, `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// [`GOLDEN_SCHEMA`].
    pub schema: u32,
    /// Id of the case.
    pub case: String,
    /// Digest of the case, [`crate::case::Case::digest`].
    pub case_digest: String,
    /// The oracle.
    pub oracle: OracleVersion,
    /// Where it answered.
    pub fingerprint: Fingerprint,
    /// Digest of the weights it answered from.
    pub weights: String,
    /// Digest of the model's `config.json`.
    pub config: String,
    /// How it computed.
    pub composition: Composition,
    /// Prompt ids.
    pub prompt: Vec<u32>,
    /// Ids of the decode steps, chosen greedily or taken from the prompt; the engine replays them. Of
    /// denoised canvases, the ids they came to.
    pub steps: Vec<u32>,
    /// What the answer holds: distinct tokens, margins, entropy.
    pub strength: serde_json::Value,
    /// The tensors, by name.
    pub tensors: BTreeMap<String, TensorEntry>,
    /// The command that made it.
    pub command: String,
}
