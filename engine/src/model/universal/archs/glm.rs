//! `mlx_lm/models/glm.py`, which rotates whole heads whatever `partial_rotary_factor` says. Here the key
//! is honoured, with the half of a head that the model's authors take where it is missing.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, TEN_THOUSAND, all_keys, only_act, rope_of, yes};
use crate::config::{ConfigFile, Extents, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "glm", keys, spec };

const EXTENTS: Extents = Extents { needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    rope_theta: Option<f64>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference ignores these three; here they mean what they mean to the model's authors.
    #[serde(default = "half")]
    partial_rotary_factor: f64,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference does not read it; it is taken only where it changes nothing.
    hidden_act: Option<String>,
}

fn half() -> f64 {
    0.5
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: TEN_THOUSAND,
        partial: Some(wire.partial_rotary_factor),
        may_be_partial: true,
        max_positions: dims.max_positions,
        traditional: true,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
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
