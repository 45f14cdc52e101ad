//! `mlx_lm/models/gpt_neox.py`, which computes `gelu_fast` whatever `hidden_act` says. Here the key is
//! honoured, with the exact gelu that the model's authors take where it is missing.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{gelu, whole_heads, yes};
use crate::config::{ConfigFile, Extents, HeadDim, RopeConfig, RopeKeys, keys_of};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Flow, Head, Inputs, LayerSpec, MlpInputs,
    MlpSpec, Names, NormKind, ParallelSum, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "gpt_neox", keys, spec };

const EXTENTS: Extents =
    Extents { eps: "layer_norm_eps", head_dim: HeadDim::Derived, ..Extents::LLAMA };

const NAMES: Names =
    Names { embed: "model.embed_in", layers: "model.h", norm: "model.final_layer_norm" };

/// Both blocks see the same stream, each through its own norm.
const PARALLEL: Block = Block { flow: Flow::Parallel(ParallelSum::BlocksFirst), ..Block::PRE };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    rotary_emb_base: f64,
    rotary_pct: f64,
    #[serde(default = "yes")]
    use_parallel_residual: bool,
    // The reference ignores these two; here they mean what they mean to the model's authors.
    hidden_act: Option<String>,
    rope_scaling: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    attention_bias: Option<bool>,
    tie_word_embeddings: Option<bool>,
}

/// What PyTorch keeps beside the weights.
const BUFFERS: [&str; 3] =
    [".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq"];

fn keys() -> Vec<&'static str> {
    [EXTENTS.keys(), keys_of::<Wire>().to_vec()].concat()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    whole_heads(file, &dims)?;
    file.only("intermediate_size", Some(&dims.intermediate_size), &[4 * dims.hidden_size])?;
    file.only("num_key_value_heads", Some(&dims.kv_heads), &[dims.heads])?;
    file.only("attention_bias", wire.attention_bias.as_ref(), &[true])?;
    file.only("tie_word_embeddings", wire.tie_word_embeddings.as_ref(), &[false])?;
    let keys = RopeKeys {
        theta: Some(wire.rotary_emb_base),
        partial: Some(wire.rotary_pct),
        may_be_partial: true,
        objects: &[("rope_scaling", wire.rope_scaling.as_ref())],
        max_positions: dims.max_positions,
        ..RopeKeys::default()
    };
    let rope = RopeConfig::read(file, &keys)?;
    let attention = AttentionSpec {
        path: "attention",
        inputs: Inputs::FusedByHead("query_key_value"),
        input_bias: true,
        output: "dense",
        output_bias: true,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec {
        width: dims.intermediate_size,
        inputs: MlpInputs::Plain("dense_h_to_4h"),
        down: "dense_4h_to_h",
        bias: true,
        activation: gelu(file, "hidden_act", wire.hidden_act.as_ref(), Activation::Gelu)?,
    };
    let block = if wire.use_parallel_residual { PARALLEL } else { Block::PRE };
    let layer = LayerSpec::new(block, attention, FeedForward::Dense(mlp));
    let head = Head::Own { path: "model.embed_out", bias: false };
    Ok(Spec {
        names: NAMES,
        norm: NormKind::Layer { bias: true },
        rename: Some(renamed),
        drops: BUFFERS.map(Drop::Suffix).to_vec(),
        ..Spec::new(dims, vec![layer; dims.num_layers], head)
    })
}

/// mlx-lm's name of a tensor of either layout.
fn renamed(name: &str) -> String {
    let name = if name.starts_with("model.") { name.to_owned() } else { format!("model.{name}") };
    name.replace(".gpt_neox.layers.", ".h.").replace(".gpt_neox.", ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_have_the_same_names() {
        for (theirs, ours) in [
            ("gpt_neox.layers.3.attention.dense.bias", "model.h.3.attention.dense.bias"),
            ("gpt_neox.embed_in.weight", "model.embed_in.weight"),
            ("gpt_neox.final_layer_norm.bias", "model.final_layer_norm.bias"),
            ("embed_out.weight", "model.embed_out.weight"),
        ] {
            assert_eq!(renamed(theirs), ours);
            assert_eq!(renamed(ours), ours);
        }
        let dropped = |name: &str| BUFFERS.map(Drop::Suffix).iter().any(|drop| drop.covers(name));
        assert!(dropped(&renamed("gpt_neox.layers.0.attention.bias")));
        assert!(!dropped(&renamed("gpt_neox.layers.0.attention.dense.bias")));
    }
}
