//! `mlx_lm/models/mimo.py`. The layers that predict further tokens are dropped.

use serde::Deserialize;

use super::Arch;
use super::layout::{ANY, Layout, Ropes, SILU};
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "mimo", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        head_dim: HeadDim::Derived,
        needs_kv_heads: true,
        defaults: &[("max_position_embeddings", 32_768.0)],
        ..Extents::LLAMA
    },
    rope: Ropes::LLAMA,
    neutral: &[
        ("hidden_act", SILU),
        ("attention_bias", "[true]"),
        ("max_window_layers", ANY),
        ("num_nextn_predict_layers", ANY),
        ("use_mrope", "[false]"),
        ("use_sliding_window", "[false]"),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference does not read it; it is taken where `use_sliding_window` says that nothing slides.
    sliding_window: Option<usize>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    if file.get("use_sliding_window").is_none() {
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
    }
    let attention = AttentionSpec { input_bias: true, ..AttentionSpec::new(&dims, rope) };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    let mut drops = vec![Drop::INV_FREQ, Drop::Prefix("model.mtp_layers.".to_owned())];
    if tied {
        drops.push(Drop::HEAD);
    }
    Ok(Spec { drops, ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied)) })
}
