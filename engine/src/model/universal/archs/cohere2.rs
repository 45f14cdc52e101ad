//! `mlx_lm/models/cohere2.py`. Only its sliding layers know positions.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::{only_kinds, whole_heads, window};
use crate::config::{ConfigFile, Extents, HeadDim, LayerKind};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, Kernel, LayerSpec, LogitScale, MlpSpec,
    NormKind, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "cohere2", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        eps: "layer_norm_eps",
        head_dim: HeadDim::Needed,
        needs_kv_heads: true,
        defaults: &[
            ("hidden_size", 4096.0),
            ("head_dim", 128.0),
            ("num_hidden_layers", 32.0),
            ("intermediate_size", 14_336.0),
            ("num_attention_heads", 32.0),
            ("num_key_value_heads", 8.0),
            ("vocab_size", 256_000.0),
            ("layer_norm_eps", 1e-5),
        ],
        ..Extents::LLAMA
    },
    rope: Ropes {
        default_theta: Some(50_000.0),
        traditional: true,
        may_be_traditional: false,
        ..Ropes::LLAMA
    },
    neutral: &[
        ("hidden_act", SILU),
        ("order_of_interleaved_layers", r#"["local_attn_first"]"#),
        ("position_embedding_type", r#"["rope_gptj"]"#),
        ("rotary_pct", "[1, 1.0]"),
        ("tie_word_embeddings", "[true]"),
        ("use_embedding_sharing", "[true]"),
        ("use_gated_activation", "[true]"),
        ("use_parallel_block", "[true]"),
        ("use_parallel_embedding", "[true]"),
        ("use_qk_norm", "[false]"),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    logit_scale: Option<f64>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    layer_norm_bias: bool,
    sliding_window: Option<usize>,
    sliding_window_pattern: Option<usize>,
    // The reference reads neither; they are taken only where they repeat the pattern.
    layer_switch: Option<usize>,
    layer_types: Option<Vec<String>>,
}

impl Wire {
    fn pattern(&self) -> usize {
        self.sliding_window_pattern.unwrap_or(4)
    }
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    whole_heads(file, &dims)?;
    file.only("layer_switch", wire.layer_switch.as_ref(), &[wire.pattern()])?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        kernel: Kernel::F32ForF16,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let sliding = LayerSpec {
        kind: LayerKind::Sliding,
        ..LayerSpec::new(Block::PARALLEL, attention, FeedForward::Dense(mlp))
    };
    let mut full = LayerSpec { kind: LayerKind::Full, ..sliding.clone() };
    full.attention.rope = None;
    let layer = |kind| if kind == LayerKind::Full { full.clone() } else { sliding.clone() };
    let layers = kinds(file, &wire, dims.num_layers)?.into_iter().map(layer).collect();
    Ok(Spec {
        norm: NormKind::Layer { bias: wire.layer_norm_bias },
        window: Some(window(file, wire.sliding_window.unwrap_or(4096))?),
        logits: LogitScale::Multiply(wire.logit_scale.unwrap_or(0.0625)),
        ..Spec::new(dims, layers, Head::Tied)
    })
}

/// Every `sliding_window_pattern`-th layer sees everything.
fn kinds(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<Vec<LayerKind>, EngineError> {
    let pattern = wire.pattern();
    if !(1..=layers).contains(&pattern) {
        let wanted = format!("1 to num_hidden_layers = {layers}");
        return Err(file.unsupported("sliding_window_pattern", pattern, wanted));
    }
    let kind = |i| if i % pattern == 0 { LayerKind::Full } else { LayerKind::Sliding };
    let kinds: Vec<LayerKind> = (1..=layers).map(kind).collect();
    only_kinds(file, wire.layer_types.as_ref(), &kinds, "sliding_window_pattern")?;
    Ok(kinds)
}
