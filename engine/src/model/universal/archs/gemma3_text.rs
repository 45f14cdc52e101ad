//! `mlx_lm/models/gemma3_text.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{GELU_TANH, Layout, Ropes};
use super::shared::{above_zero, only_kinds, window};
use crate::config::{ConfigFile, Extents, HeadDim, LayerKind, RopeConfig};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, EmbedScale, FeedForward, Flow, Head, LayerSpec, MlpSpec,
    NormKind, QkNorm, QkPlace, Residual, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "gemma3_text", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        head_dim: HeadDim::Needed,
        needs_kv_heads: true,
        defaults: &[
            ("hidden_size", 1152.0),
            ("num_hidden_layers", 26.0),
            ("intermediate_size", 6912.0),
            ("num_attention_heads", 4.0),
            ("head_dim", 256.0),
            ("rms_norm_eps", 1e-6),
            ("vocab_size", 262_144.0),
            ("num_key_value_heads", 1.0),
            ("max_position_embeddings", 32_768.0),
        ],
        ..Extents::LLAMA
    },
    rope: Ropes { default_theta: Some(1_000_000.0), may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[
        ("hidden_activation", GELU_TANH),
        ("hidden_act", GELU_TANH),
        ("attention_bias", "[false]"),
        ("attn_logit_softcapping", "[]"),
        ("final_logit_softcapping", "[]"),
        ("use_bidirectional_attention", "[false]"),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "default_rope_local_base_freq")]
    rope_local_base_freq: f64,
    #[serde(default = "default_query_pre_attn_scalar")]
    query_pre_attn_scalar: f64,
    #[serde(default = "default_sliding_window")]
    sliding_window: usize,
    #[serde(default = "default_sliding_window_pattern")]
    sliding_window_pattern: usize,
    // The reference reads none of the following; they are taken only where they change nothing.
    tie_word_embeddings: Option<bool>,
    #[serde(rename = "_sliding_window_pattern")]
    new_sliding_window_pattern: Option<usize>,
    layer_types: Option<Vec<String>>,
}

fn default_rope_local_base_freq() -> f64 {
    10_000.0
}
fn default_query_pre_attn_scalar() -> f64 {
    256.0
}
fn default_sliding_window() -> usize {
    512
}
fn default_sliding_window_pattern() -> usize {
    6
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    // Objects by kind of layer, which transformers writes, say more than the reference reads.
    if let Some(found) = file.get("rope_parameters") {
        return Err(file.unsupported("rope_parameters", found, "null"));
    }
    let (dims, full, wire) = LAYOUT.read::<Wire>(file)?;
    let kinds = kinds(file, &wire, dims.num_layers)?;
    let local = RopeConfig::plain(wire.rope_local_base_freq);
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::GeluApprox);
    let block = Block { flow: Flow::Sequential(Residual::Clipped), ..Block::SANDWICH };
    let layer = |kind| {
        let rope = if kind == LayerKind::Full { full.clone() } else { local.clone() };
        let attention = AttentionSpec {
            qk_norm: Some(QkNorm::by_head(QkPlace::AfterTranspose, NormKind::RmsOnePlus)),
            scale: wire.query_pre_attn_scalar.powf(-0.5),
            ..AttentionSpec::new(&dims, rope)
        };
        LayerSpec { kind, ..LayerSpec::new(block, attention, FeedForward::Dense(mlp)) }
    };
    let layers = kinds.into_iter().map(layer).collect();
    Ok(Spec {
        norm: NormKind::RmsOnePlus,
        embed_scale: EmbedScale::Bf16((dims.hidden_size as f64).powf(0.5)),
        window: Some(wire.sliding_window),
        ..Spec::new(dims, layers, Head::AsStored { tied: wire.tie_word_embeddings })
    })
}

/// Every `sliding_window_pattern`-th layer sees everything.
fn kinds(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<Vec<LayerKind>, EngineError> {
    let pattern = wire.sliding_window_pattern;
    if !(1..=layers).contains(&pattern) {
        let wanted = format!("1 to num_hidden_layers = {layers}");
        return Err(file.unsupported("sliding_window_pattern", pattern, wanted));
    }
    window(file, wire.sliding_window)?;
    above_zero(file, "query_pre_attn_scalar", wire.query_pre_attn_scalar)?;
    above_zero(file, "rope_local_base_freq", wire.rope_local_base_freq)?;
    let new = wire.new_sliding_window_pattern.as_ref();
    file.only("_sliding_window_pattern", new, &[pattern])?;
    let full = |i: usize| i % pattern == pattern - 1;
    let kind = |i| if full(i) { LayerKind::Full } else { LayerKind::Sliding };
    let kinds: Vec<LayerKind> = (0..layers).map(kind).collect();
    only_kinds(file, wire.layer_types.as_ref(), &kinds, "sliding_window_pattern")?;
    Ok(kinds)
}
