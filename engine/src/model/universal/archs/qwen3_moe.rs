//! `mlx_lm/models/qwen3_moe.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::picks;
use super::layout::{ANY, Layout, Ropes, SILU};
use super::shared::nothing_slides;
use crate::config::{ConfigFile, Dims, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "qwen3_moe", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA },
    // The reference keeps `rope_scaling` and does not use it; transformers does.
    rope: Ropes { default_theta: None, may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[
        ("hidden_act", SILU),
        ("attention_bias", "[false]"),
        ("use_sliding_window", "[false]"),
        ("max_window_layers", ANY),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    num_experts: usize,
    num_experts_per_tok: usize,
    decoder_sparse_step: usize,
    mlp_only_layers: Vec<usize>,
    moe_intermediate_size: usize,
    norm_topk_prob: bool,
    tie_word_embeddings: bool,
    // The reference does not read it; it is taken only where no layer slides.
    sliding_window: Option<usize>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    refuse_other_maths(file, &wire)?;
    let attention = AttentionSpec {
        qk_norm: Some(QkNorm::by_head(QkPlace::BeforeTranspose, NormKind::Rms)),
        ..AttentionSpec::new(&dims, rope)
    };
    let layers = (0..dims.num_layers)
        .map(|i| {
            let feed_forward = feed_forward(file, &wire, &dims, i)?;
            Ok(LayerSpec::new(Block::PRE, attention.clone(), feed_forward))
        })
        .collect::<Result<_, EngineError>>()?;
    let tied = wire.tie_word_embeddings;
    let drops = if tied { vec![Drop::HEAD] } else { Vec::new() };
    Ok(Spec { drops, ..Spec::new(dims, layers, Head::tied_if(tied)) })
}

fn feed_forward(
    file: &ConfigFile,
    wire: &Wire,
    dims: &Dims,
    layer: usize,
) -> Result<FeedForward, EngineError> {
    let sparse = wire.num_experts > 0 && (layer + 1).is_multiple_of(wire.decoder_sparse_step);
    if !sparse || wire.mlp_only_layers.contains(&layer) {
        let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
        return Ok(FeedForward::Dense(mlp));
    }
    let count = ("num_experts", wire.num_experts);
    Ok(FeedForward::Moe(MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::SoftmaxThenTop { side: Side::Last, normalised: wire.norm_topk_prob },
        picks: picks(file, ("num_experts_per_tok", wire.num_experts_per_tok), count)?,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: count.1,
            width: wire.moe_intermediate_size,
            bias: false,
            original: OriginalNames::PROJ,
        },
        flat: false,
        rounded: true,
        shared: None,
    }))
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    nothing_slides(file, wire.sliding_window, None)?;
    if wire.decoder_sparse_step == 0 {
        return Err(file.unsupported("decoder_sparse_step", 0, "1 or more"));
    }
    if wire.num_experts > 0 && wire.moe_intermediate_size == 0 {
        return Err(file.unsupported("moe_intermediate_size", 0, "1 or more"));
    }
    Ok(())
}
