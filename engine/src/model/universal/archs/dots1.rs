//! `mlx_lm/models/dots1.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::experts::{groups, picks};
use super::shared::{SILU, all_keys, only_act};
use crate::config::{ConfigFile, Extents, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames, SharedSpec};
use crate::model::universal::router::{Choice, Groups};
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "dots1", keys, spec };

const EXTENTS: Extents = Extents { needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    first_k_dense_replace: usize,
    moe_intermediate_size: usize,
    n_routed_experts: usize,
    n_shared_experts: usize,
    norm_topk_prob: bool,
    num_experts_per_tok: usize,
    rope_theta: Option<f64>,
    routed_scaling_factor: f64,
    n_group: Option<usize>,
    topk_group: Option<usize>,
    #[serde(default)]
    mlp_bias: bool,
    rope_scaling: Option<Value>,
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference keeps these two and does not use them.
    scoring_func: Option<String>,
    attention_bias: Option<bool>,
    // The reference reads none of the following; they are taken only where they change nothing.
    rope_parameters: Option<Value>,
    hidden_act: Option<String>,
    topk_method: Option<String>,
    layer_types: Option<Vec<String>>,
    use_sliding_window: Option<bool>,
    sliding_window: Option<usize>,
    #[serde(rename = "max_window_layers")]
    _max_window_layers: Option<usize>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    refuse_other_maths(file, &wire)?;
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
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("attention_bias", wire.attention_bias.as_ref(), &[false])?;
    let sigmoid = ["sigmoid".to_owned(), "noaux_tc".to_owned()];
    file.only("scoring_func", wire.scoring_func.as_ref(), &sigmoid)?;
    file.only("topk_method", wire.topk_method.as_ref(), &["noaux_tc".to_owned()])?;
    file.only("use_sliding_window", wire.use_sliding_window.as_ref(), &[false])?;
    if wire.use_sliding_window.is_none() {
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
    }
    for kind in wire.layer_types.iter().flatten() {
        file.only("layer_types", Some(kind), &["full_attention".into()])?;
    }
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
