//! `mlx_lm/models/glm4.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Flow, Head, LayerSpec, MlpInputs, MlpSpec,
    Residual, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "glm4", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes {
        default_theta: None,
        default_partial: Some(0.5),
        traditional: true,
        ..Ropes::LLAMA
    },
    neutral: &[("hidden_act", SILU), ("tie_word_embeddings", "[false]")],
};

/// The norm that others call after attention stands before the feed-forward block here.
const BLOCK: Block = Block {
    before_attention: Some("input_layernorm"),
    after_attention: Some("post_self_attn_layernorm"),
    before_mlp: Some("post_attention_layernorm"),
    after_mlp: Some("post_mlp_layernorm"),
    flow: Flow::Sequential(Residual::Add),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    attention_bias: bool,
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
    let layer = LayerSpec::new(BLOCK, attention, FeedForward::Dense(mlp));
    Ok(Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(false)))
}
