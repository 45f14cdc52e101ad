//! `mlx_lm/models/gpt2.py`, with tensors as mlx-lm writes them. Those of Hugging Face's layout stand
//! without `model.` before their names and are transposed; they are refused by the audit.

use serde::Deserialize;

use super::Arch;
use super::shared::gelu;
use crate::config::{ConfigFile, Dims, RopeConfig, keys_of};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, Inputs, LayerSpec, MlpInputs, MlpSpec,
    Names, NormKind, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "gpt2", keys, spec };

const NAMES: Names = Names { embed: "model.wte", layers: "model.h", norm: "model.ln_f" };

const BLOCK: Block =
    Block { before_attention: Some("ln_1"), before_mlp: Some("ln_2"), ..Block::PRE };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(rename = "model_type")]
    _model_type: String,
    n_embd: usize,
    n_head: usize,
    n_layer: usize,
    n_positions: usize,
    layer_norm_epsilon: f64,
    vocab_size: usize,
    // The reference ignores it; here it means what it means to the model's authors.
    activation_function: Option<String>,
    // The reference goes by none of the following; they are taken only where they change nothing.
    add_cross_attention: Option<bool>,
    n_ctx: Option<usize>,
    n_inner: Option<usize>,
    num_key_value_heads: Option<usize>,
    reorder_and_upcast_attn: Option<bool>,
    scale_attn_by_inverse_layer_idx: Option<bool>,
    scale_attn_weights: Option<bool>,
    tie_word_embeddings: Option<bool>,
}

fn keys() -> Vec<&'static str> {
    keys_of::<Wire>().to_vec()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let wire: Wire = file.wire()?;
    let dims = dims(file, &wire)?;
    refuse_other_maths(file, &wire)?;
    let attention = AttentionSpec {
        path: "attn",
        inputs: Inputs::Fused("c_attn"),
        input_bias: true,
        output: "c_proj",
        output_bias: true,
        rope: None,
        ..AttentionSpec::new(&dims, RopeConfig::plain(1.0))
    };
    let mlp = MlpSpec {
        width: dims.intermediate_size,
        inputs: MlpInputs::Plain("c_fc"),
        down: "c_proj",
        bias: true,
        activation: gelu(
            file,
            "activation_function",
            wire.activation_function.as_ref(),
            Activation::GeluApprox,
        )?,
    };
    let layer = LayerSpec::new(BLOCK, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        names: NAMES,
        norm: NormKind::Layer { bias: true },
        positions: Some("model.wpe"),
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::Tied)
    })
}

fn dims(file: &ConfigFile, wire: &Wire) -> Result<Dims, EngineError> {
    let extents = [
        ("n_embd", wire.n_embd),
        ("n_head", wire.n_head),
        ("n_layer", wire.n_layer),
        ("n_positions", wire.n_positions),
    ];
    for (key, extent) in extents {
        if extent == 0 || i32::try_from(extent).is_err() {
            return Err(file.unsupported(key, extent, "1 to 2147483647"));
        }
    }
    if !wire.n_embd.is_multiple_of(2 * wire.n_head) {
        let wanted = format!("a divisor of n_embd = {} that leaves an even number", wire.n_embd);
        return Err(file.unsupported("n_head", wire.n_head, wanted));
    }
    Dims {
        hidden_size: wire.n_embd,
        num_layers: wire.n_layer,
        intermediate_size: 4 * wire.n_embd,
        heads: wire.n_head,
        kv_heads: wire.n_head,
        head_dim: wire.n_embd / wire.n_head,
        vocab_size: wire.vocab_size,
        max_positions: Some(wire.n_positions),
        eps: wire.layer_norm_epsilon,
    }
    .checked_as(file, "layer_norm_epsilon")
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    if let Some(context) = wire.n_ctx.filter(|context| *context != wire.n_positions) {
        return Err(file.unsupported(
            "n_ctx",
            context,
            format!("n_positions = {}", wire.n_positions),
        ));
    }
    file.only("n_inner", wire.n_inner.as_ref(), &[4 * wire.n_embd])?;
    file.only("num_key_value_heads", wire.num_key_value_heads.as_ref(), &[wire.n_head])?;
    for (key, found, wanted) in [
        ("add_cross_attention", wire.add_cross_attention, false),
        ("reorder_and_upcast_attn", wire.reorder_and_upcast_attn, false),
        ("scale_attn_by_inverse_layer_idx", wire.scale_attn_by_inverse_layer_idx, false),
        ("scale_attn_weights", wire.scale_attn_weights, true),
        ("tie_word_embeddings", wire.tie_word_embeddings, true),
    ] {
        file.only(key, found.as_ref(), &[wanted])?;
    }
    Ok(())
}
