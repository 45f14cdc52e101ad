//! `mlx_lm/models/cohere2.py`. Only its sliding layers know positions.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, only_kinds, rope_of, whole_heads, window};
use crate::config::{ConfigFile, Extents, HeadDim, LayerKind, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, Kernel, LayerSpec, LogitScale, MlpSpec,
    NormKind, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "cohere2", keys, spec };

const EXTENTS: Extents = Extents {
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
    sliding_window: Option<usize>,
    sliding_window_pattern: Option<usize>,
    // The reference ignores these two; here they mean what they mean to the model's authors.
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    layer_switch: Option<usize>,
    layer_types: Option<Vec<String>>,
    order_of_interleaved_layers: Option<String>,
    position_embedding_type: Option<String>,
    rotary_pct: Option<f64>,
    tie_word_embeddings: Option<bool>,
    use_embedding_sharing: Option<bool>,
    use_gated_activation: Option<bool>,
    use_parallel_block: Option<bool>,
    use_parallel_embedding: Option<bool>,
    use_qk_norm: Option<bool>,
}

impl Wire {
    fn pattern(&self) -> usize {
        self.sliding_window_pattern.unwrap_or(4)
    }
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    whole_heads(file, &dims)?;
    refuse_other_maths(file, &wire)?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: Some(50_000.0),
        max_positions: dims.max_positions,
        traditional: true,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
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

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("rotary_pct", wire.rotary_pct.as_ref(), &[1.0])?;
    file.only("layer_switch", wire.layer_switch.as_ref(), &[wire.pattern()])?;
    let order = wire.order_of_interleaved_layers.as_ref();
    file.only("order_of_interleaved_layers", order, &["local_attn_first".into()])?;
    let position = wire.position_embedding_type.as_ref();
    file.only("position_embedding_type", position, &["rope_gptj".into()])?;
    for (key, found, wanted) in [
        ("tie_word_embeddings", wire.tie_word_embeddings, true),
        ("use_embedding_sharing", wire.use_embedding_sharing, true),
        ("use_gated_activation", wire.use_gated_activation, true),
        ("use_parallel_block", wire.use_parallel_block, true),
        ("use_parallel_embedding", wire.use_parallel_embedding, true),
        ("use_qk_norm", wire.use_qk_norm, false),
    ] {
        file.only(key, found.as_ref(), &[wanted])?;
    }
    Ok(())
}
