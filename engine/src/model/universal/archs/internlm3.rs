//! `mlx_lm/models/internlm3.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, TEN_THOUSAND, all_keys, only_act, rope_of};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "internlm3", keys, spec };

const EXTENTS: Extents = Extents {
    head_dim: HeadDim::Derived,
    defaults: &[("max_position_embeddings", 32_768.0)],
    ..Extents::LLAMA
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct Wire {
    #[serde(default)]
    bias: bool,
    #[serde(default)]
    qkv_bias: bool,
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    #[serde(default)]
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
    // The output projection's bias goes by `bias` to the model's authors, by `qkv_bias` in the reference.
    file.only("qkv_bias", Some(&wire.qkv_bias), &[wire.bias])?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: TEN_THOUSAND,
        max_positions: dims.max_positions,
        traditional: wire.rope_traditional,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
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
