//! `mlx_lm/models/exaone.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::{whole_heads, yes};
use crate::config::{ConfigFile, Extents};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec, Names, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "exaone", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        layers: "num_layers",
        eps: "layer_norm_epsilon",
        needs_kv_heads: true,
        ..Extents::LLAMA
    },
    rope: Ropes { default_theta: None, ..Ropes::LLAMA },
    neutral: &[("activation_function", SILU)],
};

const NAMES: Names =
    Names { embed: "transformer.wte", layers: "transformer.h", norm: "transformer.ln_f" };

const BLOCK: Block =
    Block { before_attention: Some("ln_1"), before_mlp: Some("ln_2"), ..Block::PRE };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    whole_heads(file, &dims)?;
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
