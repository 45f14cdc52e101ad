//! `mlx_lm/models/gemma.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes};
use super::shared::gelu;
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, EmbedScale, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "gemma", keys, spec };

/// gemma's and gemma2's.
pub(super) const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA };

const LAYOUT: Layout = Layout {
    extents: EXTENTS,
    rope: Ropes::LLAMA,
    neutral: &[
        ("attention_bias", "[false]"),
        ("tie_word_embeddings", "[true]"),
        ("use_bidirectional_attention", "[false]"),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    // The reference reads neither and computes the exact form; what a config says is meant.
    hidden_activation: Option<String>,
    hidden_act: Option<String>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let fallback = gelu(file, "hidden_act", wire.hidden_act.as_ref(), Activation::Gelu)?;
    let activation = gelu(file, "hidden_activation", wire.hidden_activation.as_ref(), fallback)?;
    let mlp = MlpSpec::gated(dims.intermediate_size, activation);
    let attention = AttentionSpec::new(&dims, rope);
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        norm: NormKind::RmsOnePlus,
        embed_scale: EmbedScale::Number((dims.hidden_size as f64).powf(0.5)),
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::Tied)
    })
}
