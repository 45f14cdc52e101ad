//! `rope_scaling` and `rope_parameters`.

use serde_json::{Map, Value};

use super::ConfigFile;
use crate::error::EngineError;

/// A rotary position encoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeConfig {
    /// The base of the geometric row of frequencies.
    pub base: f64,
    /// Positions are multiplied by this.
    pub scale: f64,
    /// Whether neighbours pair up, rather than the two halves of a head.
    pub traditional: bool,
}

/// What `initialize_rope` of `mlx_lm/models/rope_utils.py` makes of the types supported here:
/// `default` and `linear`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeScaling {
    /// Positions are multiplied by this: 1, or 1 / factor for `linear`.
    pub scale: f64,
    /// The base where the object carries one.
    pub theta: Option<f64>,
}

impl RopeScaling {
    /// No scaling.
    pub const DEFAULT: Self = Self { scale: 1.0, theta: None };

    /// Reads the object under `key`; absent and null mean no scaling.
    pub(super) fn read(
        file: &ConfigFile,
        key: &str,
        value: Option<&Value>,
    ) -> Result<Self, EngineError> {
        let Some(value) = value else { return Ok(Self::DEFAULT) };
        let Some(object) = value.as_object() else {
            return Err(file.unsupported(key, value, "an object or null"));
        };
        let kind = kind(object);
        let scale = match kind {
            "default" => 1.0,
            "linear" => 1.0 / positive(file, key, object, "factor")?,
            other => {
                let key = format!("{key}.rope_type");
                return Err(file.unsupported(&key, format!("`{other}`"), "`default` or `linear`"));
            }
        };
        for name in object.keys() {
            let read = match name.as_str() {
                "type" | "rope_type" | "rope_theta" => true,
                "factor" => kind == "linear",
                _ => false,
            };
            if !read {
                return Err(file.error(format!("`{key}.{name}` is read by nothing")));
            }
        }
        let theta = object
            .contains_key("rope_theta")
            .then(|| positive(file, key, object, "rope_theta"))
            .transpose()?;
        Ok(Self { scale, theta })
    }
}

/// `type`, else `rope_type`, else `default`, as the reference looks them up.
fn kind(object: &Map<String, Value>) -> &str {
    ["type", "rope_type"]
        .into_iter()
        .filter_map(|key| object.get(key).and_then(Value::as_str))
        .find(|kind| !kind.is_empty())
        .unwrap_or("default")
}

fn positive(
    file: &ConfigFile,
    key: &str,
    object: &Map<String, Value>,
    name: &str,
) -> Result<f64, EngineError> {
    let value = object.get(name).unwrap_or(&Value::Null);
    value
        .as_f64()
        .filter(|number| *number > 0.0)
        .ok_or_else(|| file.unsupported(&format!("{key}.{name}"), value, "a number above 0"))
}
