//! `mlx_lm/models/qwen2.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{ANY, Layout, Ropes, SILU};
use super::shared::{nothing_slides, usual_drops, yes};
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "qwen2", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        head_dim: HeadDim::Derived,
        needs_kv_heads: true,
        defaults: &[("max_position_embeddings", 32_768.0)],
        ..Extents::LLAMA
    },
    rope: Ropes { default_theta: Some(1_000_000.0), ..Ropes::LLAMA },
    neutral: &[
        ("hidden_act", SILU),
        ("use_sliding_window", "[false]"),
        ("max_window_layers", ANY),
        ("use_mrope", "[false]"),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference reads neither; they are taken only where no layer slides.
    sliding_window: Option<usize>,
    layer_types: Option<Vec<String>>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    nothing_slides(file, wire.sliding_window, wire.layer_types.as_ref())?;
    let attention = AttentionSpec { input_bias: true, ..AttentionSpec::new(&dims, rope) };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    let layers = vec![layer; dims.num_layers];
    Ok(Spec { drops: usual_drops(tied), ..Spec::new(dims, layers, Head::tied_if(tied)) })
}
