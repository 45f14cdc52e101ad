//! `mlx_lm/models/ernie4_5.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, rope_of};
use crate::config::{ConfigFile, Extents, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "ernie4_5", keys, spec };

const EXTENTS: Extents = Extents { needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    rope_theta: f64,
    use_bias: bool,
    tie_word_embeddings: bool,
    // The reference ignores these two; here they mean what they mean to the model's authors.
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    compression_ratio: Option<f64>,
    hidden_act: Option<String>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("compression_ratio", wire.compression_ratio.as_ref(), &[1.0])?;
    let keys = RopeKeys {
        theta: Some(wire.rope_theta),
        max_positions: dims.max_positions,
        traditional: true,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention = AttentionSpec {
        input_bias: wire.use_bias,
        output_bias: wire.use_bias,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp =
        MlpSpec { bias: wire.use_bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    Ok(Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(wire.tie_word_embeddings)))
}
