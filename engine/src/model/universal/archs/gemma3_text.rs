//! `mlx_lm/models/gemma3_text.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{GELU_TANH, all_keys, only_act};
use crate::config::{ConfigFile, Extents, HeadDim, LayerKind, RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, EmbedScale, FeedForward, Flow, Head, LayerSpec, MlpSpec,
    NormKind, QkNorm, QkPlace, Residual, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "gemma3_text", keys, spec };

const EXTENTS: Extents = Extents {
    eps: "rms_norm_eps",
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
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "default_rope_theta")]
    rope_theta: f64,
    #[serde(default = "default_rope_local_base_freq")]
    rope_local_base_freq: f64,
    #[serde(default = "default_query_pre_attn_scalar")]
    query_pre_attn_scalar: f64,
    #[serde(default = "default_sliding_window")]
    sliding_window: usize,
    #[serde(default = "default_sliding_window_pattern")]
    sliding_window_pattern: usize,
    rope_scaling: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    tie_word_embeddings: Option<bool>,
    hidden_activation: Option<String>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    attn_logit_softcapping: Option<Value>,
    final_logit_softcapping: Option<Value>,
    use_bidirectional_attention: Option<bool>,
    #[serde(rename = "_sliding_window_pattern")]
    new_sliding_window_pattern: Option<usize>,
    layer_types: Option<Vec<String>>,
    rope_parameters: Option<Value>,
}

fn default_rope_theta() -> f64 {
    1_000_000.0
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
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    check(file, &wire, dims.num_layers)?;
    let kinds: Vec<LayerKind> = (0..dims.num_layers).map(|i| wire.kind(i)).collect();
    refuse_other_maths(file, &wire, &kinds)?;
    let full = RopeConfig::read(
        file,
        &RopeKeys {
            theta: Some(wire.rope_theta),
            objects: &[("rope_scaling", wire.rope_scaling.as_ref())],
            max_positions: dims.max_positions,
            ..RopeKeys::default()
        },
    )?;
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

impl Wire {
    /// Every `sliding_window_pattern`-th layer sees everything.
    fn kind(&self, layer: usize) -> LayerKind {
        let last = self.sliding_window_pattern - 1;
        if layer % self.sliding_window_pattern == last {
            LayerKind::Full
        } else {
            LayerKind::Sliding
        }
    }
}

fn check(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<(), EngineError> {
    if !(1..=layers).contains(&wire.sliding_window_pattern) {
        let wanted = format!("1 to num_hidden_layers = {layers}");
        return Err(file.unsupported(
            "sliding_window_pattern",
            wire.sliding_window_pattern,
            wanted,
        ));
    }
    if wire.sliding_window == 0 || i32::try_from(wire.sliding_window).is_err() {
        return Err(file.unsupported("sliding_window", wire.sliding_window, "1 to 2147483647"));
    }
    let scalar = wire.query_pre_attn_scalar;
    if scalar.is_nan() || scalar <= 0.0 {
        return Err(file.unsupported("query_pre_attn_scalar", scalar, "a number above 0"));
    }
    Ok(())
}

fn refuse_other_maths(
    file: &ConfigFile,
    wire: &Wire,
    kinds: &[LayerKind],
) -> Result<(), EngineError> {
    only_act(file, "hidden_activation", wire.hidden_activation.as_ref(), GELU_TANH)?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), GELU_TANH)?;
    file.only("attention_bias", wire.attention_bias.as_ref(), &[false])?;
    file.only("attn_logit_softcapping", wire.attn_logit_softcapping.as_ref(), &[])?;
    file.only("final_logit_softcapping", wire.final_logit_softcapping.as_ref(), &[])?;
    let bidirectional = wire.use_bidirectional_attention.as_ref();
    file.only("use_bidirectional_attention", bidirectional, &[false])?;
    let (pattern, new) = (wire.sliding_window_pattern, wire.new_sliding_window_pattern.as_ref());
    file.only("_sliding_window_pattern", new, &[pattern])?;
    file.only("rope_parameters", wire.rope_parameters.as_ref(), &[])?;
    let Some(types) = &wire.layer_types else { return Ok(()) };
    let meant: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    if *types != meant {
        let wanted = format!("what sliding_window_pattern = {pattern} gives");
        return Err(file.unsupported("layer_types", format!("{types:?}"), wanted));
    }
    Ok(())
}
