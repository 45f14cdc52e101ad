//! `mlx_lm/models/apertus.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes};
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec,
    NormKind, QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "apertus", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Derived, needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes { default_theta: None, ..Ropes::LLAMA },
    neutral: &[
        ("hidden_act", r#"["xielu"]"#),
        ("attention_bias", "[false]"),
        ("post_norm", "[false]"),
        ("qk_norm", "[true]"),
    ],
};

const BLOCK: Block = Block {
    before_attention: Some("attention_layernorm"),
    before_mlp: Some("feedforward_layernorm"),
    ..Block::PRE
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    mlp_bias: bool,
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let attention = AttentionSpec {
        qk_norm: Some(QkNorm::by_head(QkPlace::BeforeTranspose, NormKind::Rms)),
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec {
        width: dims.intermediate_size,
        inputs: MlpInputs::Plain("up_proj"),
        down: "down_proj",
        bias: wire.mlp_bias,
        activation: Activation::Xielu,
    };
    let layer = LayerSpec::new(BLOCK, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        drops: if tied { vec![Drop::HEAD] } else { vec![] },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied))
    })
}
