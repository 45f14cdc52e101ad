//! `mlx_lm/models/seed_oss.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::yes;
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "seed_oss", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes::LLAMA,
    neutral: &[("hidden_act", SILU), ("pretraining_tp", "[1]")],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    attention_out_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_out_bias,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp =
        MlpSpec { bias: wire.mlp_bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        drops: if tied { vec![Drop::HEAD] } else { vec![] },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied))
    })
}
