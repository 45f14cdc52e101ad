//! `mlx_lm/models/cohere.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, LogitScale, MlpSpec, NormKind,
    QkNorm, QkNormKind, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "cohere", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        eps: "layer_norm_eps",
        head_dim: HeadDim::Derived,
        needs_kv_heads: true,
        defaults: &[
            ("hidden_size", 8192.0),
            ("num_hidden_layers", 40.0),
            ("intermediate_size", 22_528.0),
            ("num_attention_heads", 64.0),
            ("num_key_value_heads", 64.0),
            ("vocab_size", 256_000.0),
            ("layer_norm_eps", 1e-5),
        ],
        ..Extents::LLAMA
    },
    rope: Ropes {
        default_theta: Some(8_000_000.0),
        traditional: true,
        may_be_traditional: false,
        ..Ropes::LLAMA
    },
    neutral: &[("hidden_act", SILU), ("pretraining_tp", "[1]"), ("tie_word_embeddings", "[true]")],
};

const HEAD_NORMS: QkNorm = QkNorm {
    names: ["q_norm", "k_norm"],
    place: QkPlace::BeforeTranspose,
    kind: QkNormKind::Matrix,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    logit_scale: Option<f64>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    layer_norm_bias: bool,
    #[serde(default)]
    use_qk_norm: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        qk_norm: wire.use_qk_norm.then_some(HEAD_NORMS),
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let layer = LayerSpec::new(Block::PARALLEL, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        norm: NormKind::Layer { bias: wire.layer_norm_bias },
        logits: LogitScale::Multiply(wire.logit_scale.unwrap_or(0.0625)),
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::Tied)
    })
}
