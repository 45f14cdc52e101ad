//! `mlx_lm/models/nemotron.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{TEN_THOUSAND, all_keys, only_act, rope_of};
use crate::config::{ConfigFile, Extents, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec, NormKind,
    Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "nemotron", keys, spec };

const EXTENTS: Extents = Extents { eps: "norm_eps", needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "half")]
    partial_rotary_factor: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference ignores it; here it means what it means to the model's authors.
    rope_parameters: Option<Value>,
    // The reference goes by neither of these; they are taken only where they change nothing.
    hidden_act: String,
    rope_traditional: Option<bool>,
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
    only_act(file, "hidden_act", Some(&wire.hidden_act), &["relu2"])?;
    file.only("rope_traditional", wire.rope_traditional.as_ref(), &[false])?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: TEN_THOUSAND,
        partial: Some(wire.partial_rotary_factor),
        may_be_partial: true,
        max_positions: dims.max_positions,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec {
        width: dims.intermediate_size,
        inputs: MlpInputs::Plain("up_proj"),
        down: "down_proj",
        bias: wire.mlp_bias,
        activation: Activation::Relu2,
    };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        norm: NormKind::LayerOnePlus,
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(wire.tie_word_embeddings))
    })
}
