//! `mlx_lm/models/ministral3.py`: llama whose queries grow with their position.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::{above_zero, usual_drops, yes};
use crate::config::{ConfigFile, LayerKind, layer_kinds};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, QueryScale, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "ministral3", keys, spec };

const BETA: &str = "llama_4_scaling_beta";
const ORIGINAL: &str = "original_max_position_embeddings";

const LAYOUT: Layout = Layout {
    rope: Ropes {
        default_theta: None,
        may_be_traditional: false,
        also: &[BETA, ORIGINAL],
        ..Ropes::LLAMA
    },
    neutral: &[
        ("hidden_act", SILU),
        ("attention_bias", "[false]"),
        ("mlp_bias", "[false]"),
        ("use_sliding_window", "[false]"),
    ],
    ..Layout::LLAMA
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    layer_types: Option<Vec<String>>,
    sliding_window: Option<usize>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    // The reference takes all of its rope from one object.
    for key in ["rope_theta", "rope_scaling"] {
        if let Some(found) = file.get(key) {
            return Err(file.unsupported(key, found, "null; it belongs into `rope_parameters`"));
        }
    }
    let attention = AttentionSpec::new(&dims, rope);
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let kinds = if let Some(types) = &wire.layer_types {
        layer_kinds(file, types, dims.num_layers, wire.sliding_window)?
    } else {
        // A window without sliding layers is one that the reference never opens.
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
        vec![LayerKind::Full; dims.num_layers]
    };
    let layers = kinds.into_iter().map(|kind| LayerSpec { kind, ..layer.clone() }).collect();
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        window: wire.sliding_window,
        query_scale: Some(query_scale(file)?),
        drops: usual_drops(tied),
        ..Spec::new(dims, layers, Head::tied_if(tied))
    })
}

fn query_scale(file: &ConfigFile) -> Result<QueryScale, EngineError> {
    let read = |subkey: &str| {
        let key = format!("rope_parameters.{subkey}");
        let found = file.get("rope_parameters").and_then(|object| object.get(subkey));
        let number = found.and_then(serde_json::Value::as_f64);
        let number = number.ok_or_else(|| file.error(format!("`{key}` is missing")))?;
        above_zero(file, &key, number)?;
        Ok::<_, EngineError>(number)
    };
    Ok(QueryScale { beta: read(BETA)?, original: read(ORIGINAL)? as usize })
}
