//! `mlx_lm/models/llama.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, yes};
use crate::config::{ConfigFile, Extents, LayerKind, RopeConfig, RopeKeys, layer_kinds};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "llama", keys, spec };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    layer_types: Option<Vec<String>>,
    sliding_window: Option<usize>,
    // The reference does not read these two; transformers does.
    rope_parameters: Option<Value>,
    partial_rotary_factor: Option<f64>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    pretraining_tp: Option<u32>,
    rope_interleaved: Option<bool>,
}

/// Every key of a llama config.
pub(in crate::model) fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&Extents::LLAMA)
}

/// Reads a llama config.
pub(in crate::model) fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = Extents::LLAMA.read(file)?;
    let wire: Wire = rest.wire()?;
    refuse_other_maths(file, &wire)?;
    let rope = rope(file, &wire, dims.max_positions)?;
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
    let drops = if tied { vec![Drop::INV_FREQ, Drop::HEAD] } else { vec![Drop::INV_FREQ] };
    Ok(Spec { window: wire.sliding_window, drops, ..Spec::new(dims, layers, Head::tied_if(tied)) })
}

fn rope(
    file: &ConfigFile,
    wire: &Wire,
    max_positions: Option<usize>,
) -> Result<RopeConfig, EngineError> {
    RopeConfig::read(
        file,
        &RopeKeys {
            theta: wire.rope_theta,
            default_theta: Some(10_000.0),
            partial: wire.partial_rotary_factor,
            objects: &[
                ("rope_scaling", wire.rope_scaling.as_ref()),
                ("rope_parameters", wire.rope_parameters.as_ref()),
            ],
            max_positions,
            traditional: wire.rope_traditional,
            ..RopeKeys::default()
        },
    )
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("pretraining_tp", wire.pretraining_tp.as_ref(), &[1])?;
    file.only("rope_interleaved", wire.rope_interleaved.as_ref(), &[wire.rope_traditional])
}

fn kinds(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<Vec<LayerKind>, EngineError> {
    let Some(types) = &wire.layer_types else {
        // A window without sliding layers is one that the reference never opens.
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
        return Ok(vec![LayerKind::Full; layers]);
    };
    layer_kinds(file, types, layers, wire.sliding_window)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
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
