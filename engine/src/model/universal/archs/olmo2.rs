//! `mlx_lm/models/olmo2.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::yes;
use crate::config::{ConfigFile, Extents};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "olmo2", keys, spec };

const LAYOUT: Layout =
    Layout { extents: Extents::LLAMA, rope: Ropes::LLAMA, neutral: &[("hidden_act", SILU)] };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        qk_norm: Some(QkNorm::by_head(QkPlace::Width, NormKind::Rms)),
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp =
        MlpSpec { bias: wire.mlp_bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let layer = LayerSpec::new(Block::POST, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        drops: vec![Drop::INV_FREQ],
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(wire.tie_word_embeddings))
    })
}
