//! What an architecture does with a checkpoint, as data that one forward executes.

use super::config::Config;
use crate::error::OracleError;
use crate::ops::RopeScaling;

/// Where RMS norms stand in a block and how their weights enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockNorms {
    /// Before attention and before the MLP.
    Pre,
    /// Before and after both, weights stored less one.
    Sandwich,
}

/// The MLP's gate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    Silu,
    GeluTanh,
}

/// Rotary parameters of a layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RopePlan {
    pub base: f64,
    pub scaling: RopeScaling,
    pub traditional: bool,
}

/// One block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LayerPlan {
    pub rope: RopePlan,
    /// Keys a query sees back from its own position.
    pub window: Option<usize>,
}

/// A whole model.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one choice of an architecture")]
pub(super) struct Plan {
    pub layers: Vec<LayerPlan>,
    pub hidden: usize,
    pub intermediate: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocab_size: usize,
    pub eps: f64,
    pub max_position: usize,
    pub attention_scale: f64,
    pub attention_bias: bool,
    pub mlp_bias: bool,
    /// Whether queries and keys are normed head by head.
    pub head_norms: bool,
    pub block_norms: BlockNorms,
    pub activation: Activation,
    pub embedding_scale: f64,
    /// Whether the embedding is also the output projection.
    pub tied: bool,
}

impl Plan {
    /// What the architectures share, with Llama's choices for the rest.
    pub fn common(config: &Config) -> Result<Self, OracleError> {
        let hidden = config.need("hidden_size", config.hidden_size())?;
        let heads = config.need("num_attention_heads", config.num_attention_heads())?;
        let layers = config.need("num_hidden_layers", config.num_hidden_layers())?;
        let head_dim = config.head_dim().unwrap_or(hidden / heads.max(1));
        let kv_heads = config.num_key_value_heads().unwrap_or(heads);
        if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 || head_dim == 0 {
            let found = format!("{heads} heads on {kv_heads} kv heads of {head_dim}");
            return Err(config.error(format!("found {found}, wanted a whole number of heads each")));
        }
        let rope = RopePlan {
            base: config.rope_theta().unwrap_or(10_000.0),
            scaling: config.rope_scaling()?,
            traditional: false,
        };
        Ok(Self {
            layers: vec![LayerPlan { rope, window: None }; layers],
            hidden,
            intermediate: config.need("intermediate_size", config.intermediate_size())?,
            heads,
            kv_heads,
            head_dim,
            vocab_size: config.need("vocab_size", config.vocab_size())?,
            eps: config.need("rms_norm_eps", config.rms_norm_eps())?,
            max_position: max_position(config)?,
            attention_scale: 1.0 / (head_dim as f64).sqrt(),
            attention_bias: false,
            mlp_bias: false,
            head_norms: false,
            block_norms: BlockNorms::Pre,
            activation: Activation::Silu,
            embedding_scale: 1.0,
            tied: true,
        })
    }
}

/// Zero where nothing reads it.
fn max_position(config: &Config) -> Result<usize, OracleError> {
    let scaling = config.rope_scaling()?;
    let read = matches!(scaling, RopeScaling::Dynamic { .. } | RopeScaling::LongRope(_));
    let given = config.max_position_embeddings();
    if read { config.need("max_position_embeddings", given) } else { Ok(given.unwrap_or(0)) }
}
