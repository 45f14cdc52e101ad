//! `mlx_lm/models/phi.py`, which computes `gelu_new` whatever `hidden_act` says. Here the key is
//! honoured.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes};
use super::shared::{gelu, whole_heads};
use crate::config::{ConfigFile, Extents, HeadDim};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, Kernel, LayerSpec, MlpInputs, MlpSpec,
    Names, NormKind, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "phi", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        eps: "layer_norm_eps",
        head_dim: HeadDim::Derived,
        needs_kv_heads: false,
        defaults: &[
            ("max_position_embeddings", 2048.0),
            ("vocab_size", 51_200.0),
            ("hidden_size", 2560.0),
            ("num_attention_heads", 32.0),
            ("num_hidden_layers", 32.0),
            ("intermediate_size", 10_240.0),
            ("layer_norm_eps", 1e-5),
        ],
        ..Extents::LLAMA
    },
    rope: Ropes { default_partial: Some(0.5), may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[("qk_layernorm", "[false]"), ("tie_word_embeddings", "[false]")],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    // The reference ignores it; here it means what it means to the model's authors.
    hidden_act: Option<String>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    whole_heads(file, &dims)?;
    let attention = AttentionSpec {
        input_bias: true,
        output: "dense",
        output_bias: true,
        scale: (1.0 / dims.head_dim as f64).sqrt(),
        kernel: Kernel::F32,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec {
        width: dims.intermediate_size,
        inputs: MlpInputs::Plain("fc1"),
        down: "fc2",
        bias: true,
        activation: gelu(file, "hidden_act", wire.hidden_act.as_ref(), Activation::GeluApprox)?,
    };
    let layer = LayerSpec::new(Block::PARALLEL, attention, FeedForward::Dense(mlp));
    let head = Head::Own { path: "lm_head", bias: true };
    Ok(Spec {
        names: Names { norm: "model.final_layernorm", ..Names::default() },
        norm: NormKind::Layer { bias: true },
        ..Spec::new(dims, vec![layer; dims.num_layers], head)
    })
}
