//! `mlx_lm/models/nemotron.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes};
use crate::config::{ConfigFile, Extents};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec, NormKind,
    Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "nemotron", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { eps: "norm_eps", needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes { default_partial: Some(0.5), may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[("hidden_act", r#"["relu2"]"#)],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
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
