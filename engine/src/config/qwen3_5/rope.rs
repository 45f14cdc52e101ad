//! `rope_parameters` of a `qwen3_5` config.

use serde_json::Value;

use super::wire::WireText;
use crate::config::ConfigFile;
use crate::config::rope::{RopeConfig, RopeKeys};
use crate::error::EngineError;
use crate::ops::RopeScaling;

/// What the reference takes where `rope_parameters` leaves it open.
const THETA: f64 = 100_000.0;
const PARTIAL: f64 = 0.25;

/// The position encoding. `rope_parameters` decides alone, and the keys beside it may not contradict
/// it; only where it is null or empty do they count.
pub(super) fn read(
    file: &ConfigFile,
    wire: &WireText,
    head_dim: usize,
) -> Result<RopeConfig, EngineError> {
    let none = serde_json::Map::new();
    let object = match &wire.rope_parameters {
        None => Some(&none),
        Some(Value::Null) => None,
        Some(Value::Object(object)) if object.is_empty() => None,
        Some(Value::Object(object)) => Some(object),
        Some(other) => return Err(file.unsupported("rope_parameters", other, "an object or null")),
    };
    let (name, rope) = if let Some(object) = object {
        let number = |key: &str| object.get(key).and_then(Value::as_f64);
        let theta = number("rope_theta").unwrap_or(THETA);
        let partial = number("partial_rotary_factor").unwrap_or(PARTIAL);
        file.only("rope_theta", wire.rope_theta.as_ref(), &[theta])?;
        file.only("partial_rotary_factor", wire.partial_rotary_factor.as_ref(), &[partial])?;
        let same: Vec<Value> = wire.rope_parameters.iter().cloned().collect();
        file.only("rope_scaling", wire.rope_scaling.as_ref(), &same)?;
        let object = ("rope_parameters", wire.rope_parameters.as_ref());
        ("rope_parameters", one(file, wire, theta, partial, object)?)
    } else {
        let theta = wire.rope_theta.unwrap_or(THETA);
        let partial = wire.partial_rotary_factor.unwrap_or(PARTIAL);
        let object = ("rope_scaling", wire.rope_scaling.as_ref());
        ("rope_scaling", one(file, wire, theta, partial, object)?)
    };
    check(file, name, &rope, head_dim)?;
    Ok(rope)
}

/// Refuses what the network cannot do, or the reference does otherwise than its authors meant.
fn check(
    file: &ConfigFile,
    name: &str,
    rope: &RopeConfig,
    head_dim: usize,
) -> Result<(), EngineError> {
    let refused = match rope.scaling {
        // The reference would take the share of a share.
        RopeScaling::Proportional(_) => Some("`proportional`"),
        // What a memory took in cannot be rotated anew where the factors change.
        RopeScaling::LongRope(_) => Some("`longrope`"),
        _ => None,
    };
    if let Some(kind) = refused {
        return Err(file.unsupported(&format!("{name}.rope_type"), kind, "another type"));
    }
    let rotated = rope.rotated(head_dim);
    if rotated == 0 || !rotated.is_multiple_of(2) {
        let found = format!("{} of {head_dim} values", rope.partial_rotary_factor);
        let key = format!("{name}.partial_rotary_factor");
        return Err(file.unsupported(&key, found, "an even number of them, above 0"));
    }
    Ok(())
}

fn one(
    file: &ConfigFile,
    wire: &WireText,
    theta: f64,
    partial: f64,
    object: (&str, Option<&Value>),
) -> Result<RopeConfig, EngineError> {
    let keys = RopeKeys {
        theta: Some(theta),
        partial: Some(partial),
        may_be_partial: true,
        objects: &[object],
        max_positions: Some(wire.max_position_embeddings),
        ..RopeKeys::default()
    };
    RopeConfig::read(file, &keys)
}
