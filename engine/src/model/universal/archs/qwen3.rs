//! `mlx_lm/models/qwen3.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act};
use crate::config::{ConfigFile, Dims, Extents, HeadDim, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "qwen3", keys, spec };

const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    tie_word_embeddings: bool,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    sliding_window: Option<usize>,
    #[serde(rename = "max_window_layers")]
    _max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
}

/// What a qwen3 config says.
#[derive(Debug, Clone)]
pub(in crate::model) struct Qwen3Config {
    /// Extents.
    pub(in crate::model) dims: Dims,
    /// The position encoding of every layer.
    pub(in crate::model) rope: RopeConfig,
    /// Whether the embedding is the output projection too.
    pub(in crate::model) tied: bool,
}

/// Every key of a qwen3 config.
pub(in crate::model) fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

/// Reads a qwen3 config.
pub(in crate::model) fn read(file: &ConfigFile) -> Result<Qwen3Config, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    refuse_other_maths(file, &wire)?;
    let rope = rope(file, &wire, dims.max_positions)?;
    Ok(Qwen3Config { dims, rope, tied: wire.tie_word_embeddings })
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let Qwen3Config { dims, rope, tied } = read(file)?;
    let attention = AttentionSpec {
        qk_norm: Some(QkNorm::by_head(QkPlace::BeforeTranspose, NormKind::Rms)),
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let drops = if tied { vec![Drop::HEAD] } else { Vec::new() };
    let layers = vec![layer; dims.num_layers];
    Ok(Spec { drops, ..Spec::new(dims, layers, Head::tied_if(tied)) })
}

/// `rope_parameters` gives what `rope_theta` and `rope_scaling` leave open, and may not contradict what
/// they say.
fn rope(
    file: &ConfigFile,
    wire: &Wire,
    max_positions: Option<usize>,
) -> Result<RopeConfig, EngineError> {
    RopeConfig::read(
        file,
        &RopeKeys {
            theta: wire.rope_theta,
            objects: &[
                ("rope_scaling", wire.rope_scaling.as_ref()),
                ("rope_parameters", wire.rope_parameters.as_ref()),
            ],
            max_positions,
            ..RopeKeys::default()
        },
    )
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("attention_bias", wire.attention_bias.as_ref(), &[false])?;
    file.only("use_sliding_window", wire.use_sliding_window.as_ref(), &[false])?;
    if wire.use_sliding_window.is_none() {
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
    }
    for kind in wire.layer_types.iter().flatten() {
        file.only("layer_types", Some(kind), &["full_attention".into()])?;
    }
    Ok(())
}
