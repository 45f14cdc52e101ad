//! `mlx_lm/models/olmoe.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::picks;
use super::layout::{Layout, SILU};
use super::shared::yes;
use crate::config::ConfigFile;
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    AttentionSpec, Block, FeedForward, Head, LayerSpec, NormKind, QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "olmoe", keys, spec };

const LAYOUT: Layout =
    Layout { neutral: &[("hidden_act", SILU), ("clip_qkv", "[]")], ..Layout::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct Wire {
    num_experts: usize,
    num_experts_per_tok: usize,
    #[serde(default)]
    norm_topk_prob: bool,
    #[serde(default)]
    attention_bias: bool,
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
        output_bias: wire.attention_bias,
        qk_norm: Some(QkNorm::by_head(QkPlace::Width, NormKind::Rms)),
        ..AttentionSpec::new(&dims, rope)
    };
    let count = ("num_experts", wire.num_experts);
    let moe = MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::SoftmaxThenTop { side: Side::First, normalised: wire.norm_topk_prob },
        picks: picks(file, ("num_experts_per_tok", wire.num_experts_per_tok), count)?,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: count.1,
            width: dims.intermediate_size,
            bias: wire.mlp_bias,
            original: OriginalNames::PROJ,
        },
        flat: true,
        rounded: false,
        shared: None,
    };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Moe(moe));
    let layers = vec![layer; dims.num_layers];
    Ok(Spec::new(dims, layers, Head::tied_if(wire.tie_word_embeddings)))
}
