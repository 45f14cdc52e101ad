//! `mlx_lm/models/qwen3.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{ANY, Layout, Ropes, SILU};
use super::shared::nothing_slides;
use crate::config::{ConfigFile, Dims, Extents, HeadDim, RopeConfig};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "qwen3", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes { default_theta: None, may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[
        ("hidden_act", SILU),
        ("attention_bias", "[false]"),
        ("use_sliding_window", "[false]"),
        ("max_window_layers", ANY),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    tie_word_embeddings: bool,
    // The reference reads neither; they are taken only where no layer slides.
    sliding_window: Option<usize>,
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
    LAYOUT.keys::<Wire>()
}

/// Reads a qwen3 config.
pub(in crate::model) fn read(file: &ConfigFile) -> Result<Qwen3Config, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    nothing_slides(file, wire.sliding_window, wire.layer_types.as_ref())?;
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
