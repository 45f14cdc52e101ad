//! `mlx_lm/models/starcoder2.py`, which ignores `hidden_act` and `sliding_window`. Here both mean what
//! they mean to the model's authors; where they say `gelu` and null, the reference computes the same.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes};
use super::shared::{gelu, window, yes};
use crate::config::{ConfigFile, Extents, HeadDim, LayerKind};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec, NormKind,
    Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "starcoder2", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        eps: "norm_epsilon",
        head_dim: HeadDim::Derived,
        needs_kv_heads: true,
        defaults: &[("norm_epsilon", 1e-5), ("vocab_size", 49_152.0)],
        ..Extents::LLAMA
    },
    rope: Ropes { default_theta: Some(100_000.0), may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[
        ("use_bias", "[true]"),
        ("norm_type", r#"["layer_norm"]"#),
        ("mlp_type", r#"["default"]"#),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference ignores these two; here they mean what they mean to the model's authors.
    hidden_act: Option<String>,
    sliding_window: Option<usize>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
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
