//! `mlx_lm/models/seed_oss.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, TEN_THOUSAND, all_keys, only_act, rope_of, yes};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "seed_oss", keys, spec };

const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    attention_out_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference ignores it; here it means what it means to the model's authors.
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    pretraining_tp: Option<u32>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("pretraining_tp", wire.pretraining_tp.as_ref(), &[1])?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: TEN_THOUSAND,
        max_positions: dims.max_positions,
        traditional: wire.rope_traditional,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_out_bias,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp =
        MlpSpec { bias: wire.mlp_bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        drops: if tied { vec![Drop::HEAD] } else { vec![] },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied))
    })
}
