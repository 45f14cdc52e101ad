//! `mlx_lm/models/glm.py`, which rotates whole heads whatever `partial_rotary_factor` says. Here the key
//! is honoured, with the half of a head that the model's authors take where it is missing.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::yes;
use crate::config::{ConfigFile, Extents};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "glm", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes {
        default_partial: Some(0.5),
        traditional: true,
        may_be_traditional: false,
        ..Ropes::LLAMA
    },
    neutral: &[("hidden_act", SILU)],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let attention =
        AttentionSpec { input_bias: wire.attention_bias, ..AttentionSpec::new(&dims, rope) };
    let mlp = MlpSpec {
        inputs: MlpInputs::Fused("gate_up_proj"),
        ..MlpSpec::gated(dims.intermediate_size, Activation::Silu)
    };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        drops: if tied { vec![Drop::INV_FREQ, Drop::HEAD] } else { vec![Drop::INV_FREQ] },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied))
    })
}
