//! Architectures, and the one table that dispatches to them.

mod attention;
mod dedicated;
mod dense;
mod gemma3_text;
mod identity;
mod mlp;
mod remap;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use mlx_parity_tensor::Dtype;
use mlx_rs::Array;

use self::dedicated::diffusion_gemma::{self, DiffusionGemma};
use self::dedicated::gemma4;
use crate::array::host_dtype;
use crate::cache::{Form, KvCache};
use crate::config::{
    self, ConfigFile, DenseConfig, Dims, Gemma3TextConfig, Gemma4TextConfig, Qwen35Config,
};
use crate::denoise::{DenoiseOptions, DenoiseStep, Denoised};
use crate::error::{EngineError, op};
use crate::fault::Fault;
use crate::taps::TapSink;
use crate::weights::Weights;

/// One supported `model_type`.
struct Architecture {
    model_type: &'static str,
    /// The keys its config reader knows.
    keys: fn() -> &'static [&'static str],
    load: Load,
}

/// Reads the config and takes the architecture's tensors out of the checkpoint.
type Load = fn(&ConfigFile, &mut Weights, Option<Fault>) -> Result<Box<dyn Network>, EngineError>;

const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        model_type: "llama",
        keys: DenseConfig::llama_keys,
        load: |file, weights, fault| {
            Ok(Box::new(dense::Dense::load(&DenseConfig::read_llama(file)?, weights, fault)?))
        },
    },
    Architecture {
        model_type: "qwen3",
        keys: DenseConfig::qwen3_keys,
        load: |file, weights, fault| {
            Ok(Box::new(dense::Dense::load(&DenseConfig::read_qwen3(file)?, weights, fault)?))
        },
    },
    Architecture {
        model_type: "gemma3_text",
        keys: Gemma3TextConfig::keys,
        load: |file, weights, fault| {
            let config = Gemma3TextConfig::read(file)?;
            Ok(Box::new(gemma3_text::Gemma3Text::load(file, &config, weights, fault)?))
        },
    },
    Architecture {
        model_type: "qwen3_5",
        keys: Qwen35Config::keys,
        load: |file, weights, fault| {
            Ok(Box::new(dedicated::qwen3_5::Qwen35::load(
                Qwen35Config::read(file)?,
                weights,
                fault,
            )?))
        },
    },
    Architecture {
        model_type: diffusion_gemma::MODEL_TYPE,
        keys: DiffusionGemma::keys,
        load: |file, weights, fault| Ok(Box::new(DiffusionGemma::load(file, weights, fault)?)),
    },
    Architecture {
        model_type: "gemma4_text",
        keys: Gemma4TextConfig::text_keys,
        load: gemma4::load_text,
    },
    Architecture { model_type: "gemma4", keys: Gemma4TextConfig::keys, load: gemma4::load },
    Architecture { model_type: "gemma4_unified", keys: Gemma4TextConfig::keys, load: gemma4::load },
];

/// Every `model_type` that [`Model::load`] takes.
pub fn supported_model_types() -> Vec<&'static str> {
    ARCHITECTURES.iter().map(|architecture| architecture.model_type).collect()
}

/// Every key of `config.json` that the reader of a model type gives a meaning, or takes only with the
/// value that changes nothing; none for a type that is not supported. Those of
/// [`HARMLESS`](crate::config::HARMLESS) are taken besides, and any other key is refused.
pub fn config_keys(model_type: &str) -> Vec<&'static str> {
    ARCHITECTURES
        .iter()
        .filter(|architecture| architecture.model_type == model_type)
        .flat_map(|architecture| (architecture.keys)().iter().chain(config::QUANTIZATION_KEYS))
        .copied()
        .collect()
}

/// A loaded architecture.
pub(crate) trait Network {
    /// Builds the graph of logits `[batch, n, vocab]` for ids `[batch, n]` behind what the caches hold, and
    /// takes the new positions into the caches.
    fn forward(
        &self,
        ids: &Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError>;

    /// Empty caches (`make_cache`): one a layer, or, where layers share keys and values, one for each
    /// that has its own.
    fn new_caches(&self) -> Vec<KvCache>;

    /// The longest sequence that is rotated as short ones are, where longer ones are rotated otherwise
    /// ([`Rope::length_limit`](crate::nn::Rope::length_limit)). Such a network gives its rotations
    /// [`KvCache::position`], so that they know how long the sequence will be.
    fn length_limit(&self) -> Option<i32> {
        None
    }

    /// Heads and head width of a cache's keys.
    fn kv_shape(&self, _cache: usize) -> [usize; 2] {
        let dims = self.dims();
        [dims.kv_heads, dims.head_dim]
    }

    /// Extents.
    fn dims(&self) -> &Dims;

    /// The dtype of the embedded tokens, which the layers keep.
    fn dtype(&self) -> mlx_rs::Dtype;

    /// The network as one that denoises a canvas instead of decoding token by token, where it is one;
    /// [`Network::forward`] of such a network always fails.
    fn denoiser(&self) -> Option<&DiffusionGemma> {
        None
    }
}

/// How to load a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOptions {
    /// A deliberate fault; none by default.
    pub fault: Option<Fault>,
}

/// A model in memory, ready for a [`Decoder`](crate::Decoder).
pub struct Model {
    architecture: &'static str,
    network: Box<dyn Network>,
    dtype: Dtype,
    eos_token_ids: Vec<u32>,
    identity: String,
    fault: Option<Fault>,
}

impl Model {
    /// Loads a folder in Hugging Face's layout: `config.json` and `model.safetensors`, or the shards
    /// that `model.safetensors.index.json` lists.
    ///
    /// # Errors
    /// A config that is not fully understood, an unknown `model_type`, a tensor that is missing,
    /// left over or unfit, an unreadable file: the [`EngineError`] names the file and the fix.
    pub fn load(dir: &Path, options: &LoadOptions) -> Result<Self, EngineError> {
        if let Some(fault) = options.fault {
            fault.allowed()?;
        }
        // The first guarded call installs the handler that turns MLX's exceptions into errors.
        op("default_device", mlx_rs::Device::try_default())?;
        let file = ConfigFile::read(dir)?;
        let architecture = architecture(&file)?;
        let mut weights = Weights::open(dir, &file)?;
        let identity = identity::of(&file, weights.checkpoint())?;
        let network = (architecture.load)(&file, &mut weights, options.fault)?;
        weights.finish(&file)?;
        Ok(Self {
            architecture: architecture.model_type,
            dtype: host_dtype(network.dtype())?,
            network,
            eos_token_ids: file.eos_token_ids()?,
            identity,
            fault: options.fault,
        })
    }

    /// The `model_type`.
    pub fn architecture(&self) -> &str {
        self.architecture
    }

    /// Rows of the embedding, and columns of the logits.
    pub fn vocab_size(&self) -> usize {
        self.network.dims().vocab_size
    }

    /// The dtype the layers compute in and the logits have.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Number of layers.
    pub fn num_layers(&self) -> usize {
        self.network.dims().num_layers
    }

    /// Positions the model was trained for, where its config says so.
    pub fn max_positions(&self) -> Option<usize> {
        self.network.dims().max_positions
    }

    /// The ids that end a generation, as the folder's configs say.
    pub fn eos_token_ids(&self) -> &[u32] {
        &self.eos_token_ids
    }

    /// Denoises canvas after canvas behind a prompt: what a diffusion model does in the place of
    /// [`Decoder`](crate::Decoder) and [`generate`](crate::generate). `watch` sees each step; breaking
    /// ends the run.
    ///
    /// # Errors
    /// [`EngineError::NotDiffusion`] for a model that decodes token by token;
    /// [`EngineError::DenoiseOption`], [`EngineError::EmptyPrompt`] and
    /// [`EngineError::TokenOutOfRange`] before anything is computed; [`EngineError::Op`] where MLX
    /// throws.
    pub fn denoise(
        &self,
        prompt: &[u32],
        options: &DenoiseOptions,
        mut watch: impl FnMut(&DenoiseStep) -> ControlFlow<()>,
    ) -> Result<Denoised, EngineError> {
        match self.network.denoiser() {
            Some(denoiser) => denoiser.denoise(prompt, options, &mut watch),
            None => Err(EngineError::NotDiffusion { model_type: self.architecture }),
        }
    }

    /// Refuses a model that has no next token.
    pub(crate) fn autoregressive(&self) -> Result<(), EngineError> {
        match self.network.denoiser() {
            Some(_) => Err(EngineError::NotAutoregressive { model_type: self.architecture }),
            None => Ok(()),
        }
    }

    pub(crate) fn network(&self) -> &dyn Network {
        self.network.as_ref()
    }

    /// What caches of this model look like, to keep those of another out.
    pub(crate) fn cache_form(&self) -> Form<'_> {
        let caches = self.network.new_caches().len();
        Form {
            model: &self.identity,
            dtype: self.dtype,
            kv_shapes: (0..caches).map(|cache| self.network.kv_shape(cache)).collect(),
        }
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("architecture", &self.architecture)
            .field("dtype", &self.dtype)
            .field("num_layers", &self.num_layers())
            .field("vocab_size", &self.vocab_size())
            .finish_non_exhaustive()
    }
}

fn architecture(file: &ConfigFile) -> Result<&'static Architecture, EngineError> {
    let found = file.model_type()?;
    if file.get("model_file").is_some() {
        return Err(file.unsupported("model_file", "custom Python code", "absent"));
    }
    ARCHITECTURES.iter().find(|known| known.model_type == found).ok_or_else(|| {
        EngineError::UnknownModelType {
            file: file.path().to_owned(),
            found: found.to_owned(),
            remap: remap::mlx_lm_module(found),
            supported: supported_model_types(),
        }
    })
}
