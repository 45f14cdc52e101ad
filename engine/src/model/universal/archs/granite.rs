//! `mlx_lm/models/granite.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::yes;
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, EmbedScale, FeedForward, Flow, Head, LayerSpec,
    LogitScale, MlpSpec, Residual, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "granite", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Derived, needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes { default_theta: None, may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[("hidden_act", SILU)],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    logits_scaling: f64,
    attention_multiplier: f64,
    embedding_multiplier: f64,
    residual_multiplier: f64,
    attention_bias: bool,
    mlp_bias: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    if wire.logits_scaling == 0.0 {
        return Err(file.unsupported("logits_scaling", 0, "a number to divide by"));
    }
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        scale: wire.attention_multiplier,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp =
        MlpSpec { bias: wire.mlp_bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let flow = Flow::Sequential(Residual::Scaled(wire.residual_multiplier));
    let block = Block { flow, ..Block::PRE };
    let layer = LayerSpec::new(block, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        embed_scale: EmbedScale::Number(wire.embedding_multiplier),
        logits: LogitScale::Divide(wire.logits_scaling),
        drops: if tied { vec![Drop::HEAD] } else { vec![] },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied))
    })
}
