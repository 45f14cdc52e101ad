//! `mlx_lm/models/glm4.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, rope_of, yes};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Flow, Head, LayerSpec, MlpInputs, MlpSpec,
    Residual, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "glm4", keys, spec };

const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA };

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
    partial_rotary_factor: f64,
    rope_theta: f64,
    #[serde(default = "yes")]
    rope_traditional: bool,
    // The reference ignores these two; here they mean what they mean to the model's authors.
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    tie_word_embeddings: Option<bool>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("tie_word_embeddings", wire.tie_word_embeddings.as_ref(), &[false])?;
    let keys = RopeKeys {
        theta: Some(wire.rope_theta),
        partial: Some(wire.partial_rotary_factor),
        may_be_partial: true,
        max_positions: dims.max_positions,
        traditional: wire.rope_traditional,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention =
        AttentionSpec { input_bias: wire.attention_bias, ..AttentionSpec::new(&dims, rope) };
    let mlp = MlpSpec {
        inputs: MlpInputs::Fused("gate_up_proj"),
        ..MlpSpec::gated(dims.intermediate_size, Activation::Silu)
    };
    let layer = LayerSpec::new(BLOCK, attention, FeedForward::Dense(mlp));
    Ok(Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(false)))
}
