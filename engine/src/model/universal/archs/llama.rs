//! `mlx_lm/models/llama.py`.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, SILU};
use super::shared::{usual_drops, window, yes};
use crate::config::{ConfigFile, LayerKind, layer_kinds};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "llama", keys, spec };

const LAYOUT: Layout =
    Layout { neutral: &[("hidden_act", SILU), ("pretraining_tp", "[1]")], ..Layout::LLAMA };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    layer_types: Option<Vec<String>>,
    sliding_window: Option<usize>,
    // The reference does not read it; taken only where it says what `rope_traditional` does.
    rope_interleaved: Option<bool>,
}

/// Every key of a llama config.
pub(in crate::model) fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

/// Reads a llama config.
pub(in crate::model) fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    file.only("rope_interleaved", wire.rope_interleaved.as_ref(), &[rope.traditional])?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp =
        MlpSpec { bias: wire.mlp_bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let kinds = kinds(file, &wire, dims.num_layers)?;
    let layers = kinds.into_iter().map(|kind| LayerSpec { kind, ..layer.clone() }).collect();
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        window: wire.sliding_window,
        drops: usual_drops(tied),
        ..Spec::new(dims, layers, Head::tied_if(tied))
    })
}

fn kinds(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<Vec<LayerKind>, EngineError> {
    if let Some(types) = &wire.layer_types {
        return layer_kinds(file, types, layers, wire.sliding_window);
    }
    // mistral's window holds in every layer. The reference opens it for `layer_types` only; up to the
    // window both are the same.
    let Some(positions) = wire.sliding_window else { return Ok(vec![LayerKind::Full; layers]) };
    if file.model_type()? != "mistral" {
        return Err(file.unsupported(
            "sliding_window",
            positions,
            "null, where no `layer_types` slide",
        ));
    }
    window(file, positions)?;
    Ok(vec![LayerKind::Sliding; layers])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::RopeConfig;
    use crate::config::testing::config;

    #[test]
    fn defaults_are_those_of_the_reference() {
        let spec = spec(&config(&json!({
            "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
            "intermediate_size": 96, "num_attention_heads": 4, "rms_norm_eps": 1e-6,
            "vocab_size": 40,
        })))
        .expect("a good config");
        assert_eq!(spec.head, Head::Tied);
        assert_eq!((spec.dims.kv_heads, spec.dims.head_dim), (4, 16));
        assert_eq!(spec.layers[0].attention.rope, Some(RopeConfig::plain(1e4)));
        assert!(spec.layers.iter().all(|layer| layer.kind == LayerKind::Full));
    }
}
