//! `mlx_lm/models/gemma2.py`.

use serde::Deserialize;

use super::Arch;
use super::gemma::EXTENTS;
use super::layout::{GELU_TANH, Layout, Ropes};
use super::shared::{above_zero, only_kinds, window};
use crate::config::{ConfigFile, LayerKind};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, EmbedScale, FeedForward, Head, Kernel, LayerSpec, LogitScale,
    MlpSpec, NormKind, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "gemma2", keys, spec };

const LAYOUT: Layout = Layout {
    extents: EXTENTS,
    rope: Ropes::LLAMA,
    neutral: &[
        ("hidden_act", GELU_TANH),
        ("hidden_activation", GELU_TANH),
        ("attention_bias", "[false]"),
        ("tie_word_embeddings", "[true]"),
        ("use_bidirectional_attention", "[false]"),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "fifty")]
    attn_logit_softcapping: f64,
    #[serde(default = "thirty")]
    final_logit_softcapping: f64,
    #[serde(default = "gross")]
    query_pre_attn_scalar: f64,
    // The reference has no window; transformers opens it in every other layer, from the first on. Up
    // to the window both are the same.
    sliding_window: Option<usize>,
    layer_types: Option<Vec<String>>,
}

fn fifty() -> f64 {
    50.0
}
fn thirty() -> f64 {
    30.0
}
fn gross() -> f64 {
    144.0
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    above_zero(file, "attn_logit_softcapping", wire.attn_logit_softcapping)?;
    above_zero(file, "final_logit_softcapping", wire.final_logit_softcapping)?;
    above_zero(file, "query_pre_attn_scalar", wire.query_pre_attn_scalar)?;
    let attention = AttentionSpec {
        scale: 1.0 / wire.query_pre_attn_scalar.powf(0.5),
        kernel: Kernel::Softcap(wire.attn_logit_softcapping),
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::GeluApprox);
    let layer = LayerSpec::new(Block::SANDWICH, attention, FeedForward::Dense(mlp));
    let kinds = kinds(file, &wire, dims.num_layers)?;
    let layers = kinds.into_iter().map(|kind| LayerSpec { kind, ..layer.clone() }).collect();
    Ok(Spec {
        norm: NormKind::RmsOnePlus,
        embed_scale: EmbedScale::Number((dims.hidden_size as f64).powf(0.5)),
        window: wire.sliding_window,
        logits: LogitScale::Softcap(wire.final_logit_softcapping),
        ..Spec::new(dims, layers, Head::Tied)
    })
}

fn kinds(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<Vec<LayerKind>, EngineError> {
    let every_other = |i| if i % 2 == 0 { LayerKind::Sliding } else { LayerKind::Full };
    let kinds: Vec<LayerKind> = match wire.sliding_window {
        Some(positions) => {
            window(file, positions)?;
            (0..layers).map(every_other).collect()
        }
        None => vec![LayerKind::Full; layers],
    };
    only_kinds(file, wire.layer_types.as_ref(), &kinds, "sliding_window")?;
    Ok(kinds)
}
