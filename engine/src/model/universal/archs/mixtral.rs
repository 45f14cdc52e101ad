//! `mlx_lm/models/mixtral.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::experts::picks;
use super::shared::{SILU, all_keys, only_act};
use crate::config::{ConfigFile, Extents, HeadDim, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "mixtral", keys, spec };

const EXTENTS: Extents = Extents {
    head_dim: HeadDim::Derived,
    defaults: &[
        ("vocab_size", 32_000.0),
        ("hidden_size", 4096.0),
        ("intermediate_size", 14_336.0),
        ("num_hidden_layers", 32.0),
        ("num_attention_heads", 32.0),
        ("num_key_value_heads", 8.0),
        ("rms_norm_eps", 1e-5),
    ],
    ..Extents::LLAMA
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference keeps this one and does not use it; transformers does.
    rope_scaling: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    rope_parameters: Option<Value>,
    hidden_act: Option<String>,
    sliding_window: Option<usize>,
    /// Training only.
    #[serde(rename = "router_jitter_noise")]
    _router_jitter_noise: Option<f64>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
    let rope = RopeConfig::read(
        file,
        &RopeKeys {
            theta: wire.rope_theta,
            default_theta: Some(1e6),
            objects: &[
                ("rope_scaling", wire.rope_scaling.as_ref()),
                ("rope_parameters", wire.rope_parameters.as_ref()),
            ],
            max_positions: dims.max_positions,
            traditional: wire.rope_traditional,
            ..RopeKeys::default()
        },
    )?;
    let count = ("num_local_experts", wire.num_local_experts.unwrap_or(8));
    let picked = ("num_experts_per_tok", wire.num_experts_per_tok.unwrap_or(2));
    let moe = MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::TopThenSoftmax { side: Side::First, wide: false },
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
    let attention = AttentionSpec::new(&dims, rope);
    let layer = LayerSpec {
        mlp: "block_sparse_moe",
        ..LayerSpec::new(Block::PRE, attention, FeedForward::Moe(moe))
    };
    let tied = wire.tie_word_embeddings;
    let drops = if tied { vec![Drop::HEAD] } else { Vec::new() };
    let layers = vec![layer; dims.num_layers];
    Ok(Spec { drops, ..Spec::new(dims, layers, Head::tied_if(tied)) })
}
