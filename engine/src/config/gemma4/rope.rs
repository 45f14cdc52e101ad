//! `rope_parameters` of gemma4: one object a kind of layer.

use serde_json::{Value, json};

use super::wire::WireGemma4Text;
use crate::config::rope::RopeKeys;
use crate::config::{ConfigFile, LayerKind, RopeConfig};
use crate::error::EngineError;
use crate::ops::RopeScaling;

/// The encoding of a kind of layer. A kind that `rope_parameters` does not name is a plain one.
pub(super) fn read(
    file: &ConfigFile,
    wire: &WireGemma4Text,
    kind: LayerKind,
) -> Result<RopeConfig, EngineError> {
    let object = match &wire.rope_parameters {
        Some(parameters) => parameters.get(kind.name()).cloned(),
        None => Some(default_parameters(kind)),
    };
    let path = format!("rope_parameters.{}", kind.name());
    let keys = RopeKeys {
        default_theta: Some(10_000.0),
        objects: &[(&path, object.as_ref())],
        max_positions: Some(wire.max_position_embeddings),
        traditional: wire.rope_traditional,
        ..RopeKeys::default()
    };
    RopeConfig::read(file, &keys)
}

/// Refuses parameters of kinds that do not exist, and outer factors that contradict the inner ones.
pub(super) fn refuse_others(
    file: &ConfigFile,
    wire: &WireGemma4Text,
    [full, sliding]: [&RopeConfig; 2],
) -> Result<(), EngineError> {
    let kinds = [LayerKind::Full, LayerKind::Sliding];
    for name in wire.rope_parameters.iter().flat_map(|parameters| parameters.keys()) {
        if !kinds.iter().any(|kind| kind.name() == name) {
            return Err(file.error(format!("`rope_parameters.{name}` is read by nothing")));
        }
    }
    let turning = |rope: &RopeConfig| match rope.scaling {
        RopeScaling::Proportional(p) => p.partial_rotary_factor,
        _ => 1.0,
    };
    let global = wire.global_partial_rotary_factor.as_ref();
    file.only("global_partial_rotary_factor", global, &[turning(full)])?;
    file.only("partial_rotary_factor", wire.partial_rotary_factor.as_ref(), &[turning(sliding)])
}

/// What the reference takes where `rope_parameters` is absent.
fn default_parameters(kind: LayerKind) -> Value {
    match kind {
        LayerKind::Full => json!({
            "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0,
        }),
        LayerKind::Sliding => json!({"rope_type": "default", "rope_theta": 10_000.0}),
    }
}
