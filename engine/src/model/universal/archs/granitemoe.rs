//! `mlx_lm/models/granitemoe.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::picks;
use super::layout::{Layout, Ropes, SILU};
use super::shared::yes;
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    AttentionSpec, Block, Drop, EmbedScale, FeedForward, Flow, Head, LayerSpec, LogitScale,
    Residual, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "granitemoe", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Derived, needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes { default_theta: None, may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[("hidden_act", SILU)],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    logits_scaling: f64,
    attention_multiplier: f64,
    embedding_multiplier: f64,
    residual_multiplier: f64,
    attention_bias: bool,
    num_local_experts: usize,
    num_experts_per_tok: usize,
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
        output_bias: wire.attention_bias,
        scale: wire.attention_multiplier,
        ..AttentionSpec::new(&dims, rope)
    };
    let count = ("num_local_experts", wire.num_local_experts);
    let moe = MoeSpec {
        gate: Gate::Linear("router.layer"),
        choice: Choice::TopThenSoftmax { side: Side::Last, wide: true },
        picks: picks(file, ("num_experts_per_tok", wire.num_experts_per_tok), count)?,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: count.1,
            width: dims.intermediate_size,
            bias: false,
            original: OriginalNames::LINEAR,
        },
        flat: false,
        rounded: true,
        shared: None,
    };
    let residual = Residual::Scaled(wire.residual_multiplier);
    let block = Block { flow: Flow::Sequential(residual), ..Block::PRE };
    let layer = LayerSpec {
        mlp: "block_sparse_moe",
        ..LayerSpec::new(block, attention, FeedForward::Moe(moe))
    };
    let tied = wire.tie_word_embeddings;
    let layers = vec![layer; dims.num_layers];
    Ok(Spec {
        embed_scale: EmbedScale::Number(wire.embedding_multiplier),
        logits: LogitScale::Divide(wire.logits_scaling),
        drops: if tied { vec![Drop::HEAD] } else { Vec::new() },
        ..Spec::new(dims, layers, Head::tied_if(tied))
    })
}
