//! `mlx_lm/models/glm4_moe.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::{groups, picks};
use super::layout::{ANY, Layout, Ropes, SILU};
use crate::config::{ConfigFile, Dims, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames, SharedSpec};
use crate::model::universal::router::{Choice, Groups};
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "glm4_moe", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA },
    // The reference keeps `rope_scaling` and does not use it. Where the share is missing it is the authors'.
    rope: Ropes {
        default_theta: None,
        default_partial: Some(0.5),
        may_be_traditional: false,
        ..Ropes::LLAMA
    },
    // The reference has a head of its own whatever `tie_word_embeddings` says. `sanitize` drops the
    // layers that predict further tokens.
    neutral: &[
        ("hidden_act", SILU),
        ("tie_word_embeddings", "[false]"),
        ("topk_method", r#"["noaux_tc"]"#),
        ("scoring_func", r#"["sigmoid"]"#),
        ("num_nextn_predict_layers", ANY),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    moe_intermediate_size: usize,
    norm_topk_prob: bool,
    n_group: usize,
    topk_group: usize,
    n_shared_experts: Option<usize>,
    n_routed_experts: Option<usize>,
    routed_scaling_factor: f64,
    num_experts_per_tok: usize,
    first_k_dense_replace: usize,
    use_qk_norm: bool,
    attention_bias: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    refuse_other_maths(file, &wire)?;
    let qk_norm = QkNorm::by_head(QkPlace::BeforeTranspose, NormKind::Rms);
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        qk_norm: wire.use_qk_norm.then_some(qk_norm),
        ..AttentionSpec::new(&dims, rope)
    };
    let layers = (0..dims.num_layers)
        .map(|i| {
            let feed_forward = match wire.n_routed_experts {
                Some(count) if i >= wire.first_k_dense_replace => {
                    FeedForward::Moe(moe(file, &wire, count)?)
                }
                _ => FeedForward::Dense(MlpSpec::gated(dims.intermediate_size, Activation::Silu)),
            };
            Ok(LayerSpec::new(Block::PRE, attention.clone(), feed_forward))
        })
        .collect::<Result<_, EngineError>>()?;
    let drops = vec![further_tokens(&dims)];
    Ok(Spec { drops, ..Spec::new(dims, layers, Head::tied_if(false)) })
}

/// The layer that predicts a further token stands behind the others.
fn further_tokens(dims: &Dims) -> Drop {
    Drop::Prefix(format!("model.layers.{}", dims.num_layers))
}

fn moe(file: &ConfigFile, wire: &Wire, count: usize) -> Result<MoeSpec, EngineError> {
    let width = wire.moe_intermediate_size;
    let count = ("n_routed_experts", count);
    let choice = Choice::Grouped(Groups {
        normalised: wire.norm_topk_prob,
        factor: wire.routed_scaling_factor,
        ..groups(file, wire.n_group, wire.topk_group, count.1)?
    });
    Ok(MoeSpec {
        gate: Gate::Corrected("gate"),
        choice,
        picks: picks(file, ("num_experts_per_tok", wire.num_experts_per_tok), count)?,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: count.1,
            width,
            bias: false,
            original: OriginalNames::PROJ,
        },
        flat: false,
        rounded: true,
        shared: wire.n_shared_experts.map(|shared| SharedSpec {
            path: "shared_experts",
            mlp: MlpSpec::gated(width * shared, Activation::Silu),
            gate: None,
        }),
    })
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    for (key, extent) in [
        ("moe_intermediate_size", wire.moe_intermediate_size),
        ("n_shared_experts", wire.n_shared_experts.unwrap_or(1)),
    ] {
        if extent == 0 {
            return Err(file.unsupported(key, extent, "1 or more"));
        }
    }
    Ok(())
}
