//! `mlx_lm/models/starcoder2.py`, which ignores `hidden_act` and `sliding_window`. Here both mean what
//! they mean to the model's authors; where they say `gelu` and null, the reference computes the same.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{all_keys, gelu, rope_of, window, yes};
use crate::config::{ConfigFile, Extents, HeadDim, LayerKind, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec, NormKind,
    Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "starcoder2", keys, spec };

const EXTENTS: Extents = Extents {
    eps: "norm_epsilon",
    head_dim: HeadDim::Derived,
    needs_kv_heads: true,
    defaults: &[("norm_epsilon", 1e-5), ("vocab_size", 49_152.0)],
    ..Extents::LLAMA
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    rope_theta: Option<f64>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference ignores these four; here they mean what they mean to the model's authors.
    hidden_act: Option<String>,
    sliding_window: Option<usize>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    use_bias: Option<bool>,
    norm_type: Option<String>,
    mlp_type: Option<String>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    file.only("use_bias", wire.use_bias.as_ref(), &[true])?;
    file.only("norm_type", wire.norm_type.as_ref(), &["layer_norm".into()])?;
    file.only("mlp_type", wire.mlp_type.as_ref(), &["default".into()])?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: Some(100_000.0),
        max_positions: dims.max_positions,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention =
        AttentionSpec { input_bias: true, output_bias: true, ..AttentionSpec::new(&dims, rope) };
    let mlp = MlpSpec {
        width: dims.intermediate_size,
        inputs: MlpInputs::Plain("c_fc"),
        down: "c_proj",
        bias: true,
        activation: gelu(file, "hidden_act", wire.hidden_act.as_ref(), Activation::GeluApprox)?,
    };
    let window = wire.sliding_window.map(|positions| window(file, positions)).transpose()?;
    let layer = LayerSpec {
        kind: if window.is_some() { LayerKind::Sliding } else { LayerKind::Full },
        ..LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp))
    };
    Ok(Spec {
        norm: NormKind::Layer { bias: true },
        window,
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(wire.tie_word_embeddings))
    })
}
