//! `mlx_lm/models/mixtral.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::picks;
use super::layout::{ANY, Layout, Ropes, SILU};
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "mixtral", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        head_dim: HeadDim::Derived,
        defaults: &[
            ("vocab_size", 32_000.0),
            ("hidden_size", 4096.0),
            ("intermediate_size", 14_336.0),
            ("num_hidden_layers", 32.0),
            ("num_attention_heads", 32.0),
            ("num_key_value_heads", 8.0),
            ("rms_norm_eps", 1e-5),
        ],
        ..Extents::LLAMA
    },
    // The reference keeps `rope_scaling` and does not use it; transformers does.
    rope: Ropes { default_theta: Some(1e6), ..Ropes::LLAMA },
    // Noise is for training.
    neutral: &[("hidden_act", SILU), ("sliding_window", "[]"), ("router_jitter_noise", ANY)],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    #[serde(default)]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let count = ("num_local_experts", wire.num_local_experts.unwrap_or(8));
    let picked = ("num_experts_per_tok", wire.num_experts_per_tok.unwrap_or(2));
    let moe = MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::TopThenSoftmax { side: Side::First, wide: false },
        picks: picks(file, picked, count)?,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: count.1,
            width: dims.intermediate_size,
            bias: false,
            original: OriginalNames::W,
        },
        flat: false,
        rounded: false,
        shared: None,
    };
    let attention = AttentionSpec::new(&dims, rope);
    let layer = LayerSpec {
        mlp: "block_sparse_moe",
        ..LayerSpec::new(Block::PRE, attention, FeedForward::Moe(moe))
    };
    let tied = wire.tie_word_embeddings;
    let drops = if tied { vec![Drop::HEAD] } else { Vec::new() };
    let layers = vec![layer; dims.num_layers];
    Ok(Spec { drops, ..Spec::new(dims, layers, Head::tied_if(tied)) })
}
