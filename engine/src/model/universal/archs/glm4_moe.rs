//! `mlx_lm/models/glm4_moe.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::experts::{groups, picks};
use super::shared::{SILU, all_keys, only_act};
use crate::config::{ConfigFile, Dims, Extents, HeadDim, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames, SharedSpec};
use crate::model::universal::router::{Choice, Groups};
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "glm4_moe", keys, spec };

const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
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
    rope_theta: Option<f64>,
    use_qk_norm: bool,
    tie_word_embeddings: bool,
    attention_bias: bool,
    partial_rotary_factor: f64,
    topk_method: Option<String>,
    // The reference keeps these two and does not use them.
    rope_scaling: Option<Value>,
    scoring_func: Option<String>,
    // The reference reads neither of these; they are taken only where they change nothing.
    rope_parameters: Option<Value>,
    hidden_act: Option<String>,
    /// Layers that predict further tokens; `sanitize` drops them.
    #[serde(rename = "num_nextn_predict_layers")]
    _num_nextn_predict_layers: Option<usize>,
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
            partial: Some(wire.partial_rotary_factor),
            may_be_partial: true,
            objects: &[
                ("rope_scaling", wire.rope_scaling.as_ref()),
                ("rope_parameters", wire.rope_parameters.as_ref()),
            ],
            max_positions: dims.max_positions,
            ..RopeKeys::default()
        },
    )?;
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
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    // The reference has a head of its own whatever this says.
    file.only("tie_word_embeddings", Some(&wire.tie_word_embeddings), &[false])?;
    file.only("topk_method", wire.topk_method.as_ref(), &["noaux_tc".to_owned()])?;
    file.only("scoring_func", wire.scoring_func.as_ref(), &["sigmoid".to_owned()])?;
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
