//! `mlx_lm/models/qwen2_moe.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::experts::picks;
use super::shared::{SILU, all_keys, only_act};
use crate::config::{ConfigFile, Extents, HeadDim, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames, SharedSpec};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "qwen2_moe", keys, spec };

const EXTENTS: Extents = Extents { head_dim: HeadDim::Derived, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    num_experts_per_tok: usize,
    num_experts: usize,
    moe_intermediate_size: usize,
    shared_expert_intermediate_size: usize,
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    // The reference checks this one and does not use it; transformers does.
    rope_scaling: Option<Value>,
    /// The reference has a head of its own whatever this says.
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference reads none of the following; they are taken only where they change nothing.
    rope_parameters: Option<Value>,
    hidden_act: Option<String>,
    norm_topk_prob: Option<bool>,
    decoder_sparse_step: Option<usize>,
    mlp_only_layers: Option<Vec<usize>>,
    qkv_bias: Option<bool>,
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
    let attention = AttentionSpec { input_bias: true, ..AttentionSpec::new(&dims, rope) };
    let count = ("num_experts", wire.num_experts);
    let moe = MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::SoftmaxThenTop { side: Side::First, normalised: false },
        picks: picks(file, ("num_experts_per_tok", wire.num_experts_per_tok), count)?,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: count.1,
            width: wire.moe_intermediate_size,
            bias: false,
            original: OriginalNames::PROJ,
        },
        flat: false,
        rounded: false,
        shared: Some(SharedSpec {
            path: "shared_expert",
            mlp: MlpSpec::gated(wire.shared_expert_intermediate_size, Activation::Silu),
            gate: Some("shared_expert_gate"),
        }),
    };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Moe(moe));
    let layers = vec![layer; dims.num_layers];
    Ok(Spec::new(dims, layers, Head::tied_if(false)))
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("tie_word_embeddings", Some(&wire.tie_word_embeddings), &[false])?;
    file.only("norm_topk_prob", wire.norm_topk_prob.as_ref(), &[false])?;
    file.only("decoder_sparse_step", wire.decoder_sparse_step.as_ref(), &[1])?;
    file.only("qkv_bias", wire.qkv_bias.as_ref(), &[true])?;
    file.only("use_sliding_window", wire.use_sliding_window.as_ref(), &[false])?;
    if wire.use_sliding_window.is_none() {
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
    }
    if let Some(layers) = wire.mlp_only_layers.as_ref().filter(|layers| !layers.is_empty()) {
        return Err(file.unsupported("mlp_only_layers", format!("{layers:?}"), "[]"));
    }
    for (key, extent) in [
        ("moe_intermediate_size", wire.moe_intermediate_size),
        ("shared_expert_intermediate_size", wire.shared_expert_intermediate_size),
    ] {
        if extent == 0 {
            return Err(file.unsupported(key, extent, "1 or more"));
        }
    }
    Ok(())
}
