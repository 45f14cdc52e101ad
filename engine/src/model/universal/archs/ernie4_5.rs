//! `mlx_lm/models/ernie4_5.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use crate::config::{ConfigFile, Extents};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "ernie4_5", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes {
        default_theta: None,
        traditional: true,
        may_be_traditional: false,
        ..Ropes::LLAMA
    },
    neutral: &[("hidden_act", SILU), ("compression_ratio", "[1, 1.0]")],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    use_bias: bool,
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
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
