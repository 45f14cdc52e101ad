//! `quantization`: how `mlx_lm.convert` packed the weights.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::ConfigFile;
use crate::error::EngineError;
use crate::ops::Affine;

/// The default packing and the layers that differ from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantization {
    /// The packing of a layer that an [`Override::Default`] names.
    pub default: Affine,
    /// By module path, such as `model.layers.0.mlp.down_proj`.
    pub overrides: BTreeMap<String, Override>,
}

/// What the config says of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Override {
    /// `true`: packed as the default says.
    Default,
    /// `false`: not packed.
    Plain,
    /// Packed in its own way.
    As(Affine),
}

/// Keys this reader owns.
pub(crate) const KEYS: &[&str] = &["quantization", "quantization_config", "quantize_activations"];

pub(super) fn is_key(key: &str) -> bool {
    KEYS.contains(&key)
}

impl Quantization {
    /// Reads `quantization`; `quantization_config` must be absent or the same.
    ///
    /// # Errors
    /// [`EngineError::UnsupportedConfig`] for another method or mode than affine,
    /// [`EngineError::Config`] for a malformed object.
    pub fn read(file: &ConfigFile) -> Result<Option<Self>, EngineError> {
        refuse_foreign(file)?;
        let Some(value) = file.get("quantization") else { return Ok(None) };
        let Some(object) = value.as_object() else {
            return Err(file.error("`quantization` is not an object"));
        };
        let default = affine(file, "quantization", object)?;
        let mut overrides = BTreeMap::new();
        for (path, value) in object {
            if !matches!(path.as_str(), "group_size" | "bits" | "mode") {
                overrides.insert(path.clone(), layer_override(file, path, value)?);
            }
        }
        Ok(Some(Self { default, overrides }))
    }
}

/// Refuses packings that are not MLX's own affine one.
fn refuse_foreign(file: &ConfigFile) -> Result<(), EngineError> {
    if let Some(value) = file.get("quantize_activations").filter(|value| **value != false) {
        return Err(file.unsupported("quantize_activations", value, "false"));
    }
    let (ours, other) = (file.get("quantization"), file.get("quantization_config"));
    if let Some(other) = other.filter(|other| ours != Some(*other)) {
        let method = other.get("quant_method").unwrap_or(other);
        return Err(file.unsupported(
            "quantization_config",
            method,
            "absent, or the same as `quantization`",
        ));
    }
    let export = file.path().with_file_name("hf_quant_config.json");
    if ours.is_none() && export.exists() {
        let wanted = "`quantization` in config.json";
        return Err(file.unsupported("quantization", export.display(), wanted));
    }
    Ok(())
}

fn layer_override(file: &ConfigFile, path: &str, value: &Value) -> Result<Override, EngineError> {
    let key = format!("quantization.{path}");
    match value {
        Value::Bool(true) => Ok(Override::Default),
        Value::Bool(false) => Ok(Override::Plain),
        Value::Object(object) => {
            let known = |name: &String| matches!(name.as_str(), "group_size" | "bits" | "mode");
            if let Some(name) = object.keys().find(|name| !known(name)) {
                return Err(file.error(format!("`{key}.{name}` is read by nothing")));
            }
            Ok(Override::As(affine(file, &key, object)?))
        }
        other => Err(file.unsupported(&key, other, "a boolean or an object")),
    }
}

fn affine(
    file: &ConfigFile,
    key: &str,
    object: &Map<String, Value>,
) -> Result<Affine, EngineError> {
    if let Some(mode) = object.get("mode").filter(|mode| **mode != "affine") {
        return Err(file.unsupported(&format!("{key}.mode"), mode, "`affine`"));
    }
    // The defaults of nn.quantize for mode affine.
    let group_size = choice(file, key, object, "group_size", 64, &[32, 64, 128])?;
    let bits = choice(file, key, object, "bits", 4, &[2, 3, 4, 5, 6, 8])?;
    Ok(Affine { group_size, bits })
}

fn choice(
    file: &ConfigFile,
    key: &str,
    object: &Map<String, Value>,
    name: &str,
    default: i32,
    choices: &[i32],
) -> Result<i32, EngineError> {
    let Some(value) = object.get(name) else { return Ok(default) };
    choices.iter().copied().find(|choice| *value == *choice).ok_or_else(|| {
        let key = format!("{key}.{name}");
        file.unsupported(&key, value, format!("one of {choices:?}"))
    })
}
