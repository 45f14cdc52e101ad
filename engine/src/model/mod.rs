//! Architectures, and the ladder that dispatches to them.

mod adapt;
pub mod blocks;
mod dedicated;
mod generated;
mod generator;
mod identity;
mod ladder;
mod parts;
mod remap;
mod universal;

pub use generator::{GENERATED_BY, GeneratedFile, generate_networks};
pub use ladder::{Rung, Specialization, check_config, config_keys, rungs, supported_model_types};

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use mlx_parity_tensor::Dtype;
use mlx_rs::Array;

use self::adapt::Adapted;
pub use self::adapt::Fusion;
use self::dedicated::diffusion_gemma::DiffusionGemma;
use crate::array::host_dtype;
use crate::cache::{Form, KvCache};
use crate::composition::{Lora, Plan};
use crate::config::{ConfigFile, Dims};
use crate::denoise::{DenoiseOptions, DenoiseStep, Denoised};
use crate::error::{EngineError, op};
use crate::fault::Fault;
use crate::ops::Affine;
use crate::taps::TapSink;
use crate::weights::Weights;

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

    /// Whether [`Network::forward`] runs its parts without state as segments
    /// ([`TapSink::segment`]).
    fn has_segments(&self) -> bool {
        false
    }

    /// The position behind which rotations go by where a call ends, so that a call of several tokens is
    /// not those tokens one by one ([`Rope::stretches_from`](crate::nn::Rope::stretches_from)).
    fn stretches_from(&self) -> Option<i32> {
        None
    }

    /// Whether attention reads packed keys and values.
    fn reads_packed(&self) -> bool {
        true
    }

    /// The positions there are, where a sequence cannot get longer.
    fn position_limit(&self) -> Option<usize> {
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

    /// The network in stages, where it can be run so.
    fn staged(&self) -> Option<&dyn Staged> {
        None
    }

    /// The network as one that denoises a canvas instead of decoding token by token, where it is one;
    /// [`Network::forward`] of such a network always fails.
    fn denoiser(&self) -> Option<&DiffusionGemma> {
        None
    }
}

/// A network whose forward pass can be cut between any two layers: one after the other, the stages give what
/// [`Network::forward`] gives.
pub(crate) trait Staged {
    /// What the first layer sees, `[batch, n, hidden]`, of ids `[batch, n]` behind what the caches hold.
    fn embed(&self, ids: &Array, caches: &[KvCache]) -> Result<Array, EngineError>;

    /// A run of layers on the stream `[batch, n, hidden]`, to the same.
    fn layers(
        &self,
        range: Range<usize>,
        h: &Array,
        caches: &mut [KvCache],
    ) -> Result<Array, EngineError>;

    /// Logits `[batch, n, vocab]` of the stream behind the last layer. Positions see nothing of each other.
    fn head(&self, h: &Array) -> Result<Array, EngineError>;

    /// The two factors of [`Staged::head`], `[batch, n, hidden]` and the matrix, where it is a product and
    /// nothing else.
    fn factors(&self, h: &Array) -> Result<Option<(Array, HeadWeight)>, EngineError>;
}

/// The matrix of a head, `[vocab, hidden]`.
#[derive(Debug, Clone)]
pub enum HeadWeight {
    /// Floats.
    Plain(Array),
    /// Affine-quantized values, as [`Weight::Affine`](crate::nn::Weight::Affine) has them.
    #[expect(missing_docs, reason = "the parts by their names")]
    Packed { words: Array, scales: Array, biases: Array, packing: Affine },
}

/// How to load a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOptions {
    /// A deliberate fault; none by default.
    pub fault: Option<Fault>,
    /// The only rung of the ladder that may be taken; by default the first that fits.
    pub rung: Option<Rung>,
}

/// A model in memory, ready for a [`Decoder`](crate::Decoder).
pub struct Model {
    architecture: &'static str,
    rung: Rung,
    specialization: Specialization,
    network: Box<dyn Network>,
    dtype: Dtype,
    eos_token_ids: Vec<u32>,
    /// Of the checkpoint, and of the adapter where one is mounted or fused.
    identity: String,
    bare_identity: String,
    adapted: Adapted,
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
        let choice = ladder::choose(&file, *options)?;
        if choice.specialization != Specialization::NotAsked {
            tracing::info!(model = %dir.display(), "{}", choice.specialization);
        }
        let mut weights = Weights::open(dir, &file)?;
        let identity = identity::of(&file, weights.checkpoint())?;
        let network = choice.load(&file, &mut weights, options.fault)?;
        let adapted = Adapted::new(weights.take_linears());
        weights.finish(&file)?;
        Ok(Self {
            architecture: choice.model_type,
            rung: choice.rung,
            specialization: choice.specialization,
            dtype: host_dtype(network.dtype())?,
            network,
            eos_token_ids: file.eos_token_ids()?,
            bare_identity: identity.clone(),
            identity,
            adapted,
            fault: options.fault,
        })
    }

    /// The `model_type`, or the one that mlx-lm runs it as.
    pub fn architecture(&self) -> &str {
        self.architecture
    }

    /// The rung of the ladder it was loaded from.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// Whether it is a network generated for exactly its config, and if not, why.
    pub fn specialization(&self) -> &Specialization {
        &self.specialization
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

    /// Whether this is a model for [`Model::denoise`], and not for a [`Decoder`](crate::Decoder).
    pub fn denoises(&self) -> bool {
        self.network.denoiser().is_some()
    }

    /// Refuses a model that has no next token.
    pub(crate) fn autoregressive(&self) -> Result<(), EngineError> {
        match self.network.denoiser() {
            Some(_) => Err(EngineError::NotAutoregressive { model_type: self.architecture }),
            None => Ok(()),
        }
    }

    /// Refuses a model that has nothing to compile.
    pub(crate) fn compilable(&self) -> Result<(), EngineError> {
        if self.network.has_segments() {
            return Ok(());
        }
        Err(EngineError::NotCompilable { model_type: self.architecture, rung: self.rung.name() })
    }

    /// The error for a way of training that needs a network in stages.
    pub(crate) fn not_staged(&self, wanted: &'static str) -> EngineError {
        let model_type = self.architecture.to_owned();
        EngineError::NotStaged { model_type, rung: self.rung.name(), wanted }
    }

    /// What becomes of an adapter's residual in the calls that follow.
    pub(crate) fn set_lora(&self, lora: Lora) {
        self.adapted.set_lora(lora);
    }

    pub(crate) fn network(&self) -> &dyn Network {
        self.network.as_ref()
    }

    /// What caches of this model look like, to keep those of another out.
    pub(crate) fn cache_form<'a>(&'a self, plan: &'a Plan) -> Form<'a> {
        let caches = self.network.new_caches().len();
        Form {
            model: &self.identity,
            dtype: self.dtype,
            kv_shapes: (0..caches).map(|cache| self.network.kv_shape(cache)).collect(),
            widened: (plan.lora() == Lora::Uncast).then_some(Dtype::F32),
            plan,
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
            .field("rung", &self.rung)
            .field("dtype", &self.dtype)
            .field("num_layers", &self.num_layers())
            .field("vocab_size", &self.vocab_size())
            .finish_non_exhaustive()
    }
}
