//! `mlx_lm/models/phi3.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::window;
use crate::config::{ConfigFile, Extents, HeadDim, LayerKind};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, Inputs, LayerSpec, MlpInputs, MlpSpec,
    Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "phi3", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        head_dim: HeadDim::Derived,
        defaults: &[("max_position_embeddings", 131_072.0)],
        ..Extents::LLAMA
    },
    rope: Ropes { default_partial: Some(1.0), default_original: Some(4096), ..Ropes::LLAMA },
    neutral: &[("hidden_act", SILU), ("attention_bias", "[false]")],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference has no window; transformers opens it in every layer. Up to the window both are the
    // same.
    sliding_window: Option<usize>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let kind = match wire.sliding_window {
        Some(positions) => {
            window(file, positions)?;
            LayerKind::Sliding
        }
        None => LayerKind::Full,
    };
    let attention =
        AttentionSpec { inputs: Inputs::Fused("qkv_proj"), ..AttentionSpec::new(&dims, rope) };
    let mlp = MlpSpec {
        inputs: MlpInputs::Fused("gate_up_proj"),
        ..MlpSpec::gated(dims.intermediate_size, Activation::Silu)
    };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let layers = vec![LayerSpec { kind, ..layer }; dims.num_layers];
    let head = Head::tied_if(wire.tie_word_embeddings);
    Ok(Spec { window: wire.sliding_window, ..Spec::new(dims, layers, head) })
}
