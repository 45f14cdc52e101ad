//! `mlx_lm/models/stablelm.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::whole_heads;
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Flow, Head, Kernel, LayerSpec, MlpSpec,
    NormKind, ParallelSum, QkNorm, QkNormKind, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "stablelm", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        eps: "layer_norm_eps",
        head_dim: HeadDim::Derived,
        needs_kv_heads: true,
        ..Extents::LLAMA
    },
    rope: Ropes {
        default_theta: None,
        default_partial: Some(0.25),
        may_be_traditional: false,
        ..Ropes::LLAMA
    },
    neutral: &[("hidden_act", SILU), ("tie_word_embeddings", "[false]")],
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
    use_qkv_bias: bool,
    #[serde(default)]
    use_parallel_residual: bool,
    #[serde(default)]
    qk_layernorm: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    whole_heads(file, &dims)?;
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
