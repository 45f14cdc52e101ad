//! `mlx_lm/models/stablelm.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, rope_of, whole_heads};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Flow, Head, Kernel, LayerSpec, MlpSpec,
    NormKind, ParallelSum, QkNorm, QkNormKind, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "stablelm", keys, spec };

const EXTENTS: Extents = Extents {
    eps: "layer_norm_eps",
    head_dim: HeadDim::Derived,
    needs_kv_heads: true,
    ..Extents::LLAMA
};

/// The feed-forward block sees what attention sees; the stream comes first in the sum.
const PARALLEL: Block = Block { flow: Flow::Parallel(ParallelSum::StreamFirst), ..Block::PARALLEL };

const HEAD_NORMS: QkNorm = QkNorm {
    names: ["q_layernorm", "k_layernorm"],
    place: QkPlace::BeforeTranspose,
    kind: QkNormKind::Stacked,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    rope_theta: f64,
    use_qkv_bias: bool,
    partial_rotary_factor: f64,
    #[serde(default)]
    use_parallel_residual: bool,
    #[serde(default)]
    qk_layernorm: bool,
    // The reference ignores these two; here they mean what they mean to the model's authors.
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    tie_word_embeddings: Option<bool>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    whole_heads(file, &dims)?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("tie_word_embeddings", wire.tie_word_embeddings.as_ref(), &[false])?;
    let keys = RopeKeys {
        theta: Some(wire.rope_theta),
        partial: Some(wire.partial_rotary_factor),
        may_be_partial: true,
        max_positions: dims.max_positions,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention = AttentionSpec {
        input_bias: wire.use_qkv_bias,
        qk_norm: wire.qk_layernorm.then_some(HEAD_NORMS),
        scale: (1.0 / dims.head_dim as f64).sqrt(),
        kernel: Kernel::F32,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let block = if wire.use_parallel_residual { PARALLEL } else { Block::PRE };
    let layer = LayerSpec::new(block, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        norm: NormKind::Layer { bias: true },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(false))
    })
}
