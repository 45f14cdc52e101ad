//! `mlx_lm/models/phimoe.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::experts::picks;
use super::shared::{SILU, all_keys, only_act};
use crate::config::{ConfigFile, Dims, Extents, HeadDim, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::Choice;
use crate::model::universal::spec::{
    AttentionSpec, Block, FeedForward, Head, LayerSpec, NormKind, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "phimoe", keys, spec };

const EXTENTS: Extents = Extents {
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
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    original_max_position_embeddings: Option<usize>,
    rope_scaling: Option<Value>,
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    rope_theta: Option<f64>,
    router_jitter_noise: Option<f64>,
    // The reference reads none of the following; they are taken only where they change nothing.
    rope_parameters: Option<Value>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    lm_head_bias: Option<bool>,
    tie_word_embeddings: Option<bool>,
    sliding_window: Option<usize>,
    /// Training only.
    #[serde(rename = "input_jitter_noise")]
    _input_jitter_noise: Option<f64>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    refuse_other_maths(file, &wire, &dims)?;
    let rope = RopeConfig::read(
        file,
        &RopeKeys {
            theta: wire.rope_theta,
            default_theta: Some(10_000.0),
            objects: &[
                ("rope_scaling", wire.rope_scaling.as_ref()),
                ("rope_parameters", wire.rope_parameters.as_ref()),
            ],
            max_positions: dims.max_positions,
            original: Some(wire.original_max_position_embeddings.unwrap_or(4096)),
            ..RopeKeys::default()
        },
    )?;
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
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("attention_bias", wire.attention_bias.as_ref(), &[true])?;
    file.only("lm_head_bias", wire.lm_head_bias.as_ref(), &[true])?;
    file.only("tie_word_embeddings", wire.tie_word_embeddings.as_ref(), &[false])?;
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
