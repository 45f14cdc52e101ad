//! `mlx_lm/models/internlm3.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "internlm3", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        head_dim: HeadDim::Derived,
        defaults: &[("max_position_embeddings", 32_768.0)],
        ..Extents::LLAMA
    },
    rope: Ropes::LLAMA,
    neutral: &[("hidden_act", SILU)],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    bias: bool,
    #[serde(default)]
    qkv_bias: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    // The output projection's bias goes by `bias` to the model's authors, by `qkv_bias` in the reference.
    file.only("qkv_bias", Some(&wire.qkv_bias), &[wire.bias])?;
    let attention = AttentionSpec {
        input_bias: wire.qkv_bias,
        output_bias: wire.qkv_bias,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp =
        MlpSpec { bias: wire.bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        drops: vec![Drop::Contains("attention.rope.inv_freq")],
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(wire.tie_word_embeddings))
    })
}
