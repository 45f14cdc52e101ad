//! `mlx_lm/models/exaone.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, rope_of, whole_heads, yes};
use crate::config::{ConfigFile, Extents, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec, Names, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "exaone", keys, spec };

const EXTENTS: Extents = Extents {
    layers: "num_layers",
    eps: "layer_norm_epsilon",
    needs_kv_heads: true,
    ..Extents::LLAMA
};

const NAMES: Names =
    Names { embed: "transformer.wte", layers: "transformer.h", norm: "transformer.ln_f" };

const BLOCK: Block =
    Block { before_attention: Some("ln_1"), before_mlp: Some("ln_2"), ..Block::PRE };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct Wire {
    rope_theta: f64,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    // The reference does not read it; it is taken only where it changes nothing.
    activation_function: Option<String>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    whole_heads(file, &dims)?;
    only_act(file, "activation_function", wire.activation_function.as_ref(), SILU)?;
    let keys = RopeKeys {
        theta: Some(wire.rope_theta),
        max_positions: dims.max_positions,
        traditional: wire.rope_traditional,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), None)?;
    let attention = AttentionSpec {
        path: "attn.attention",
        input_bias: wire.attention_bias,
        output: "out_proj",
        output_bias: wire.attention_bias,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec {
        width: dims.intermediate_size,
        inputs: MlpInputs::Gated { gate: "c_fc_0", up: "c_fc_1" },
        down: "c_proj",
        bias: wire.mlp_bias,
        activation: Activation::Silu,
    };
    let layer = LayerSpec::new(BLOCK, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        names: NAMES,
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(wire.tie_word_embeddings))
    })
}
