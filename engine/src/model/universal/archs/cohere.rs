//! `mlx_lm/models/cohere.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, rope_of};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, LogitScale, MlpSpec, NormKind,
    QkNorm, QkNormKind, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "cohere", keys, spec };

const EXTENTS: Extents = Extents {
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
};

const HEAD_NORMS: QkNorm = QkNorm {
    names: ["q_norm", "k_norm"],
    place: QkPlace::BeforeTranspose,
    kind: QkNormKind::Matrix,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    rope_theta: Option<f64>,
    logit_scale: Option<f64>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    layer_norm_bias: bool,
    #[serde(default)]
    use_qk_norm: bool,
    // The reference ignores these two; here they mean what they mean to the model's authors.
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    pretraining_tp: Option<u32>,
    tie_word_embeddings: Option<bool>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("pretraining_tp", wire.pretraining_tp.as_ref(), &[1])?;
    file.only("tie_word_embeddings", wire.tie_word_embeddings.as_ref(), &[true])?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: Some(8_000_000.0),
        max_positions: dims.max_positions,
        traditional: true,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
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
