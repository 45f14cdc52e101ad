//! `mlx_lm/models/phimoe.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::picks;
use super::layout::{ANY, Layout, Ropes, SILU};
use crate::config::{ConfigFile, Dims, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::Choice;
use crate::model::universal::spec::{
    AttentionSpec, Block, FeedForward, Head, LayerSpec, NormKind, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "phimoe", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        head_dim: HeadDim::Derived,
        defaults: &[
            ("vocab_size", 32_064.0),
            ("hidden_size", 4096.0),
            ("intermediate_size", 6400.0),
            ("num_hidden_layers", 32.0),
            ("num_attention_heads", 32.0),
            ("num_key_value_heads", 8.0),
            ("max_position_embeddings", 131_072.0),
            ("rms_norm_eps", 1e-6),
        ],
        ..Extents::LLAMA
    },
    rope: Ropes { default_original: Some(4096), may_be_traditional: false, ..Ropes::LLAMA },
    // Noise is for training.
    neutral: &[
        ("hidden_act", SILU),
        ("attention_bias", "[true]"),
        ("lm_head_bias", "[true]"),
        ("tie_word_embeddings", "[false]"),
        ("input_jitter_noise", ANY),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    router_jitter_noise: Option<f64>,
    // The reference does not read it; it is taken only where it never closes.
    sliding_window: Option<usize>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    refuse_other_maths(file, &wire, &dims)?;
    let attention =
        AttentionSpec { input_bias: true, output_bias: true, ..AttentionSpec::new(&dims, rope) };
    let count = ("num_local_experts", wire.num_local_experts.unwrap_or(16));
    let picked = ("num_experts_per_tok", wire.num_experts_per_tok.unwrap_or(2));
    let moe = MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::SparseMixer { jitter: wire.router_jitter_noise.unwrap_or(0.01) },
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
    let layer = LayerSpec {
        mlp: "block_sparse_moe",
        ..LayerSpec::new(Block::PRE, attention, FeedForward::Moe(moe))
    };
    let layers = vec![layer; dims.num_layers];
    let head = Head::Own { path: "lm_head", bias: true };
    Ok(Spec { norm: NormKind::Layer { bias: true }, ..Spec::new(dims, layers, head) })
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire, dims: &Dims) -> Result<(), EngineError> {
    // A window as wide as the model's positions never closes.
    if wire.sliding_window.is_some_and(|window| dims.max_positions.is_none_or(|all| window < all)) {
        let wanted = "absent, or at least max_position_embeddings";
        return Err(file.unsupported(
            "sliding_window",
            wire.sliding_window.unwrap_or_default(),
            wanted,
        ));
    }
    Ok(())
}
