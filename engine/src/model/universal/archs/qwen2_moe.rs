//! `mlx_lm/models/qwen2_moe.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::picks;
use super::layout::{ANY, Layout, Ropes, SILU};
use super::shared::nothing_slides;
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames, SharedSpec};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "qwen2_moe", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Derived, ..Extents::LLAMA },
    // The reference checks `rope_scaling` and does not use it; transformers does.
    rope: Ropes { default_theta: Some(1e6), ..Ropes::LLAMA },
    // The reference has a head of its own whatever `tie_word_embeddings` says.
    neutral: &[
        ("hidden_act", SILU),
        ("tie_word_embeddings", "[false]"),
        ("norm_topk_prob", "[false]"),
        ("decoder_sparse_step", "[1]"),
        ("mlp_only_layers", "[[]]"),
        ("qkv_bias", "[true]"),
        ("use_sliding_window", "[false]"),
        ("max_window_layers", ANY),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    num_experts_per_tok: usize,
    num_experts: usize,
    moe_intermediate_size: usize,
    shared_expert_intermediate_size: usize,
    // The reference does not read it; it is taken only where no layer slides.
    sliding_window: Option<usize>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    refuse_other_maths(file, &wire)?;
    let attention = AttentionSpec { input_bias: true, ..AttentionSpec::new(&dims, rope) };
    let count = ("num_experts", wire.num_experts);
    let moe = MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::SoftmaxThenTop { side: Side::First, normalised: false },
        picks: picks(file, ("num_experts_per_tok", wire.num_experts_per_tok), count)?,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: count.1,
            width: wire.moe_intermediate_size,
            bias: false,
            original: OriginalNames::PROJ,
        },
        flat: false,
        rounded: false,
        shared: Some(SharedSpec {
            path: "shared_expert",
            mlp: MlpSpec::gated(wire.shared_expert_intermediate_size, Activation::Silu),
            gate: Some("shared_expert_gate"),
        }),
    };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Moe(moe));
    let layers = vec![layer; dims.num_layers];
    Ok(Spec::new(dims, layers, Head::tied_if(false)))
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    nothing_slides(file, wire.sliding_window, None)?;
    for (key, extent) in [
        ("moe_intermediate_size", wire.moe_intermediate_size),
        ("shared_expert_intermediate_size", wire.shared_expert_intermediate_size),
    ] {
        if extent == 0 {
            return Err(file.unsupported(key, extent, "1 or more"));
        }
    }
    Ok(())
}
