//! `mlx_lm/models/granitemoe.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::experts::picks;
use super::shared::{SILU, all_keys, only_act, yes};
use crate::config::{ConfigFile, Extents, HeadDim, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    AttentionSpec, Block, Drop, EmbedScale, FeedForward, Flow, Head, LayerSpec, LogitScale,
    Residual, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "granitemoe", keys, spec };

const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Derived, needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    logits_scaling: f64,
    attention_multiplier: f64,
    embedding_multiplier: f64,
    residual_multiplier: f64,
    attention_bias: bool,
    rope_theta: Option<f64>,
    num_local_experts: usize,
    num_experts_per_tok: usize,
    rope_scaling: Option<Value>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference reads neither of these; they are taken only where they change nothing.
    rope_parameters: Option<Value>,
    hidden_act: Option<String>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    let rope = RopeConfig::read(
        file,
        &RopeKeys {
            theta: wire.rope_theta,
            objects: &[
                ("rope_scaling", wire.rope_scaling.as_ref()),
                ("rope_parameters", wire.rope_parameters.as_ref()),
            ],
            max_positions: dims.max_positions,
            ..RopeKeys::default()
        },
    )?;
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
