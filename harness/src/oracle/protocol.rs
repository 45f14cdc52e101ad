//! The wire format between the harness and an oracle, protocol 1.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    case::{self, AdapterUse, FaultName, SamplerName},
    golden::Composition,
};

/// The version both sides must speak.
pub const PROTOCOL: u32 = 1;

/// A request, without its envelope.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum Request {
    /// Who are you?
    Hello,
    /// Prompt a model, decode greedily, keep the logits.
    Freeze(FreezeRequest),
    /// Denoise canvases behind a prompt, keep every step.
    Denoise(DenoiseRequest),
    /// Answer wrongly, and rightly along another path.
    Deviation(DeviationRequest),
    /// Which tensors does the model of a config have?
    Inventory {
        /// The config file.
        config: PathBuf,
    },
}

/// What to freeze.
#[derive(Debug, Clone, Serialize)]
pub struct FreezeRequest {
    /// Folder of the model.
    pub model: PathBuf,
    /// The prompt.
    pub prompt: PromptWire,
    /// Decode steps.
    pub steps: usize,
    /// Take the steps from the end of the prompt instead of greedily.
    pub forced: bool,
    /// Prompt tokens per call.
    pub prefill_step: usize,
    /// Where the tensors go.
    pub out: PathBuf,
    /// What to do with the adapter in the folder `adapters` of the model.
    pub adapter: Option<AdapterUse>,
    /// How keys and values are kept and attended to.
    pub composition: Option<case::Composition>,
    /// Named intermediates to keep as well.
    pub taps: Option<TapRequest>,
}

/// What to denoise.
#[derive(Debug, Clone, Serialize)]
pub struct DenoiseRequest {
    /// Folder of the model.
    pub model: PathBuf,
    /// Token ids.
    pub prompt: Vec<u32>,
    /// The most tokens over all canvases.
    pub max_tokens: usize,
    /// Steps of a canvas.
    pub steps: usize,
    /// Seed of `mx.random`.
    pub seed: u64,
    /// Of the samples.
    pub temperature: f64,
    /// Which positions a step commits.
    pub sampler: SamplerName,
    /// Confidence that commits a position.
    pub threshold: f64,
    /// The shortest canvas.
    pub min_canvas: Option<usize>,
    /// The longest canvas.
    pub max_canvas: Option<usize>,
    /// Prompt tokens per call.
    pub prefill_step: Option<usize>,
    /// Ids that end the run.
    pub stop: Vec<u32>,
    /// Where the tensors go.
    pub out: PathBuf,
    /// Named intermediates to keep as well.
    pub taps: Option<TapRequest>,
}

/// Which fault to show.
#[derive(Debug, Clone, Serialize)]
pub struct DeviationRequest {
    /// The fault.
    #[serde(rename = "deviation")]
    pub fault: FaultName,
    /// Folder of the model.
    pub model: PathBuf,
    /// Folder of the model that drafts.
    pub draft: Option<PathBuf>,
    /// Token ids.
    pub prompt: Vec<u32>,
    /// Single steps, or tokens of a generation.
    pub steps: usize,
    /// Prompt tokens per call.
    pub prefill_step: usize,
    /// Where the tensors go.
    pub out: PathBuf,
}

/// Which step to watch.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TapRequest {
    /// 0 is the prefill, 1 the first decode step; of denoised canvases, 1 is the first of all steps.
    pub step: usize,
}

/// A prompt on the wire.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptWire {
    /// Token ids.
    Ids(Vec<u32>),
    /// Text for the oracle's own tokenizer.
    Text(String),
}

/// An answer, without its envelope.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "reply", rename_all = "lowercase")]
pub enum Answer {
    /// To [`Request::Hello`].
    Hello(Hello),
    /// To [`Request::Freeze`].
    Frozen(FreezeAnswer),
    /// To [`Request::Denoise`].
    Denoised(DenoiseAnswer),
    /// To [`Request::Deviation`].
    Deviated(DeviationAnswer),
    /// To [`Request::Inventory`].
    Inventory(InventoryAnswer),
    /// To any request that failed.
    Error {
        /// Class of the error.
        kind: String,
        /// What went wrong.
        message: String,
    },
}

/// Who the oracle is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Hello {
    /// Its name, `mlx-lm`.
    pub oracle: String,
    /// Package versions.
    pub packages: BTreeMap<String, String>,
    /// `cpu`, `metal` or `cuda`.
    pub backend: String,
    /// MLX's name for the device.
    pub device: String,
}

/// The tensors of a model, as `goldens/synthetic/<name>/tensors.json` keeps them.
#[derive(Debug, Clone, Deserialize)]
pub struct InventoryAnswer {
    /// Name, shape, kind of values and packing of each.
    pub tensors: Vec<serde_json::Value>,
    /// Digest of the weight file of each lane.
    pub digests: BTreeMap<String, String>,
}

/// What was frozen; the tensors are in the file that was asked for.
#[derive(Debug, Clone, Deserialize)]
pub struct FreezeAnswer {
    /// Prompt ids, also where text was given; without the forced steps.
    pub prompt: Vec<u32>,
    /// Ids of the decode steps.
    pub steps: Vec<u32>,
    /// How it was computed.
    pub composition: Composition,
}

/// What went wrong; both answers are in the file that was asked for.
#[derive(Debug, Clone, Deserialize)]
pub struct DeviationAnswer {
    /// How the fault showed.
    pub happened: String,
    /// How it was computed.
    pub composition: Composition,
}

/// What was denoised; the tensors of every step are in the file that was asked for.
#[derive(Debug, Clone, Deserialize)]
pub struct DenoiseAnswer {
    /// The new ids, without the one that ended the run.
    pub ids: Vec<u32>,
    /// Steps of each canvas.
    pub canvas_steps: Vec<usize>,
    /// How it was computed.
    pub composition: Composition,
}
