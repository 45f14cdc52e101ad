//! `mlx_lm/models/dots1.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::{groups, picks};
use super::layout::{ANY, Layout, Ropes, SILU};
use super::shared::nothing_slides;
use crate::config::{ConfigFile, Extents};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames, SharedSpec};
use crate::model::universal::router::{Choice, Groups};
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "dots1", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes { default_theta: None, may_be_traditional: false, ..Ropes::LLAMA },
    // The reference keeps `scoring_func` and `attention_bias`, and uses neither.
    neutral: &[
        ("hidden_act", SILU),
        ("attention_bias", "[false]"),
        ("scoring_func", r#"["sigmoid", "noaux_tc"]"#),
        ("topk_method", r#"["noaux_tc"]"#),
        ("use_sliding_window", "[false]"),
        ("max_window_layers", ANY),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    first_k_dense_replace: usize,
    moe_intermediate_size: usize,
    n_routed_experts: usize,
    n_shared_experts: usize,
    norm_topk_prob: bool,
    num_experts_per_tok: usize,
    routed_scaling_factor: f64,
    n_group: Option<usize>,
    topk_group: Option<usize>,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference reads neither; they are taken only where no layer slides.
    layer_types: Option<Vec<String>>,
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
    let mlp = |width| MlpSpec { bias: wire.mlp_bias, ..MlpSpec::gated(width, Activation::Silu) };
    let layers = (0..dims.num_layers)
        .map(|i| {
            let feed_forward = if i >= wire.first_k_dense_replace {
                let width = wire.moe_intermediate_size * wire.n_shared_experts;
                FeedForward::Moe(moe(file, &wire, mlp(width))?)
            } else {
                FeedForward::Dense(mlp(dims.intermediate_size))
            };
            Ok(LayerSpec::new(Block::PRE, attention.clone(), feed_forward))
        })
        .collect::<Result<_, EngineError>>()?;
    let tied = wire.tie_word_embeddings;
    let inv_freq = Drop::Contains("rotary_emb.inv_freq");
    let drops = if tied { vec![inv_freq, Drop::HEAD] } else { vec![inv_freq] };
    Ok(Spec { drops, ..Spec::new(dims, layers, Head::tied_if(tied)) })
}

fn moe(file: &ConfigFile, wire: &Wire, shared: MlpSpec) -> Result<MoeSpec, EngineError> {
    let count = ("n_routed_experts", wire.n_routed_experts);
    let (all, kept) = (wire.n_group.unwrap_or(1), wire.topk_group.unwrap_or(1));
    Ok(MoeSpec {
        gate: Gate::Corrected("gate"),
        choice: Choice::Grouped(Groups {
            normalised: wire.norm_topk_prob,
            factor: wire.routed_scaling_factor,
            ..groups(file, all, kept, count.1)?
        }),
        picks: picks(file, ("num_experts_per_tok", wire.num_experts_per_tok), count)?,
        experts: ExpertSpec {
            path: "experts",
            count: count.1,
            width: wire.moe_intermediate_size,
            bias: false,
            original: OriginalNames::PROJ,
        },
        flat: false,
        rounded: true,
        shared: Some(SharedSpec { path: "shared_experts", mlp: shared, gate: None }),
    })
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    nothing_slides(file, wire.sliding_window, wire.layer_types.as_ref())?;
    for (key, extent) in [
        ("moe_intermediate_size", wire.moe_intermediate_size),
        ("n_shared_experts", wire.n_shared_experts),
    ] {
        if extent == 0 {
            return Err(file.unsupported(key, extent, "1 or more"));
        }
    }
    Ok(())
}
