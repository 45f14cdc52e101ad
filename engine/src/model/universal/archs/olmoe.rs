//! `mlx_lm/models/olmoe.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::experts::picks;
use super::shared::{SILU, all_keys, only_act, yes};
use crate::config::{ConfigFile, Extents, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{
    AttentionSpec, Block, FeedForward, Head, LayerSpec, NormKind, QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "olmoe", keys, spec };

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
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference reads none of the following; they are taken only where they change nothing.
    rope_parameters: Option<Value>,
    hidden_act: Option<String>,
    clip_qkv: Option<f64>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&Extents::LLAMA)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = Extents::LLAMA.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("clip_qkv", wire.clip_qkv.as_ref(), &[])?;
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
            traditional: wire.rope_traditional,
            ..RopeKeys::default()
        },
    )?;
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
