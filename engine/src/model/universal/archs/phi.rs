//! `mlx_lm/models/phi.py`, which computes `gelu_new` whatever `hidden_act` says. Here the key is
//! honoured.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{TEN_THOUSAND, all_keys, gelu, rope_of, whole_heads};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, Kernel, LayerSpec, MlpInputs, MlpSpec,
    Names, NormKind, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "phi", keys, spec };

const EXTENTS: Extents = Extents {
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
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    /// Needed, as the reference and the model's authors differ in what they take without it.
    partial_rotary_factor: f64,
    rope_theta: Option<f64>,
    // The reference ignores these three; here they mean what they mean to the model's authors.
    hidden_act: Option<String>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    qk_layernorm: Option<bool>,
    tie_word_embeddings: Option<bool>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    whole_heads(file, &dims)?;
    file.only("qk_layernorm", wire.qk_layernorm.as_ref(), &[false])?;
    file.only("tie_word_embeddings", wire.tie_word_embeddings.as_ref(), &[false])?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: TEN_THOUSAND,
        partial: Some(wire.partial_rotary_factor),
        may_be_partial: true,
        max_positions: dims.max_positions,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
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
