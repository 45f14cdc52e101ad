//! `mlx_lm/models/granite.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, rope_of, yes};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, EmbedScale, FeedForward, Flow, Head, LayerSpec,
    LogitScale, MlpSpec, Residual, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "granite", keys, spec };

const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Derived, needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    logits_scaling: f64,
    attention_multiplier: f64,
    embedding_multiplier: f64,
    residual_multiplier: f64,
    attention_bias: bool,
    mlp_bias: bool,
    rope_theta: f64,
    rope_scaling: Option<Value>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference ignores it; here it means what it means to the model's authors.
    rope_parameters: Option<Value>,
    // The reference does not read it; it is taken only where it changes nothing.
    hidden_act: Option<String>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    if wire.logits_scaling == 0.0 {
        return Err(file.unsupported("logits_scaling", 0, "a number to divide by"));
    }
    let theta = Some(wire.rope_theta);
    let keys = RopeKeys { theta, max_positions: dims.max_positions, ..RopeKeys::default() };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
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
