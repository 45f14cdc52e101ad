//! `mlx_lm/models/helium.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, rope_of};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "helium", keys, spec };

const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Derived, needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    attention_bias: bool,
    mlp_bias: bool,
    rope_theta: f64,
    tie_word_embeddings: bool,
    // The reference ignores these two; here they mean what they mean to the model's authors.
    rope_scaling: Option<Value>,
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
    let keys = RopeKeys {
        theta: Some(wire.rope_theta),
        max_positions: dims.max_positions,
        traditional: true,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention =
        AttentionSpec { input_bias: wire.attention_bias, ..AttentionSpec::new(&dims, rope) };
    let mlp =
        MlpSpec { bias: wire.mlp_bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        // A tied model of the reference loads a head and leaves it unused.
        drops: if tied { vec![Drop::HEAD] } else { vec![] },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied))
    })
}
