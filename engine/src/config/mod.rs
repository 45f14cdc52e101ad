//! The strict reader of a model folder's `config.json`.
//!
//! A key that nothing reads is an error unless it is listed as harmless (see [`HARMLESS`]); a key
//! that mlx-lm ignores although it changes the maths is only accepted with the value that mlx-lm's
//! maths has. So a config either means what is computed, or is refused.

mod dims;
mod extents;
mod gemma4;
mod harmless;
mod json;
mod keys;
mod layers;
mod quantization;
mod qwen3_5;
mod rope;

pub use dims::Dims;
pub(crate) use extents::{Extents, HeadDim};
pub use gemma4::{Gemma4Experts, Gemma4Layer, Gemma4TextConfig, KeyValues, PerLayerInput};
pub use harmless::HARMLESS;
pub(crate) use keys::keys_of;
pub use layers::LayerKind;
pub(crate) use layers::layer_kinds;
pub(crate) use quantization::KEYS as QUANTIZATION_KEYS;
pub use quantization::{Override, Quantization};
pub use qwen3_5::{DeltaDims, Qwen35Config, Qwen35Experts};
pub use rope::{RopeConfig, RopeKeys};

use std::fmt::Display;
use std::path::{Path, PathBuf};

use mlx_parity_tensor::{Dtype, HostTensor};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::EngineError;

/// A `config.json`, parsed but not yet given a meaning.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    object: Map<String, Value>,
    /// Before the key in errors: empty, or `text_config.` for that object of the file.
    prefix: String,
}

impl ConfigFile {
    /// Reads `config.json` of a model folder.
    ///
    /// # Errors
    /// [`EngineError::Io`] where it cannot be read, [`EngineError::Config`] where it is not a JSON
    /// object or holds a key twice.
    pub fn read(folder: &Path) -> Result<Self, EngineError> {
        Self::read_named(folder, "config.json")
    }

    /// The file that an object would be, were it written.
    pub(crate) fn unwritten(path: PathBuf, object: Map<String, Value>) -> Self {
        Self { path, object, prefix: String::new() }
    }

    /// The same of another file of a folder.
    pub(crate) fn read_named(folder: &Path, name: &str) -> Result<Self, EngineError> {
        let path = folder.join(name);
        let object = json::read_object(&path)?;
        Ok(Self { path, object, prefix: String::new() })
    }

    /// The object under `key` as a config of its own, whose errors name `key.inner`.
    ///
    /// # Errors
    /// [`EngineError::Config`] where it is missing, [`EngineError::UnsupportedConfig`] where it is no
    /// object.
    pub(crate) fn section(&self, key: &str) -> Result<Self, EngineError> {
        let value = self.get(key).ok_or_else(|| self.error(format!("`{key}` is missing")))?;
        let Some(object) = value.as_object() else {
            return Err(self.unsupported(key, value, "an object"));
        };
        let prefix = format!("{}{key}.", self.prefix);
        Ok(Self { path: self.path.clone(), object: object.clone(), prefix })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The object as JSON text that spacing and the order of keys do not change.
    pub(crate) fn canonical(&self) -> String {
        let sorted: std::collections::BTreeMap<_, _> = self.object.iter().collect();
        serde_json::json!(sorted).to_string()
    }

    /// The value of `model_type`.
    ///
    /// # Errors
    /// [`EngineError::Config`] where it is missing or no string.
    pub fn model_type(&self) -> Result<&str, EngineError> {
        self.object
            .get("model_type")
            .and_then(Value::as_str)
            .ok_or_else(|| self.error("`model_type` is missing or not a string"))
    }

    /// The ids that end a generation: `eos_token_id` of `generation_config.json` where that file has
    /// one, else of `config.json`, else none (`load_config` of `mlx_lm/utils.py`).
    ///
    /// # Errors
    /// [`EngineError::Config`] where the value is neither an id nor a list of ids.
    pub fn eos_token_ids(&self) -> Result<Vec<u32>, EngineError> {
        let path = self.path.with_file_name("generation_config.json");
        if path.exists() {
            let object = json::read_object(&path)?;
            if let Some(value) = object.get("eos_token_id").filter(|value| !value.is_null()) {
                return token_ids(value).ok_or_else(|| bad_eos(&path));
            }
        }
        match self.object.get("eos_token_id") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(value) => token_ids(value).ok_or_else(|| bad_eos(&self.path)),
        }
    }

    /// The keys that describe the architecture, as its strict wire form.
    pub(crate) fn wire<T: DeserializeOwned>(&self) -> Result<T, EngineError> {
        let meant: Map<String, Value> = self
            .object
            .iter()
            .filter(|(key, _)| !harmless::is_harmless(key) && !quantization::is_key(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        serde_path_to_error::deserialize(Value::Object(meant)).map_err(|error| {
            match error.path().to_string().as_str() {
                "." if self.prefix.is_empty() => self.error(error.inner()),
                "." => self.error(format!("`{}`: {}", self.section_name(), error.inner())),
                key => self.error(format!("`{}{key}`: {}", self.prefix, error.inner())),
            }
        })
    }

    /// This config without some keys, for a reader of the others.
    pub(crate) fn without(&self, keys: &[&str]) -> Self {
        let mut rest = self.clone();
        rest.object.retain(|key, _| !keys.contains(&key.as_str()));
        rest
    }

    /// This config with only some keys, for a reader of those.
    pub(crate) fn with_only(&self, keys: &[&str]) -> Self {
        let mut part = self.clone();
        part.object.retain(|key, _| keys.contains(&key.as_str()));
        part
    }

    /// A digest of every key that may change what is computed, but for how weights are packed: each
    /// tensor says that itself.
    ///
    /// # Errors
    /// None that a string could cause.
    pub(crate) fn fingerprint(&self) -> Result<String, EngineError> {
        let harmless = HARMLESS.iter().map(|(key, _)| *key);
        let unread: Vec<&str> = harmless.chain(QUANTIZATION_KEYS.iter().copied()).collect();
        let meant = self.without(&unread).canonical().into_bytes();
        Ok(HostTensor::new(Dtype::U8, [meant.len()], meant)?.digest())
    }

    /// The path of this object in the file.
    fn section_name(&self) -> &str {
        self.prefix.trim_end_matches('.')
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// An error about this file.
    pub(crate) fn error(&self, message: impl Display) -> EngineError {
        EngineError::Config { file: self.path.clone(), message: message.to_string() }
    }

    /// An error about a value of this file that asks for other maths.
    pub(crate) fn unsupported(
        &self,
        key: &str,
        found: impl Display,
        wanted: impl Display,
    ) -> EngineError {
        EngineError::UnsupportedConfig {
            file: self.path.clone(),
            key: format!("{}{key}", self.prefix),
            found: found.to_string(),
            wanted: wanted.to_string(),
        }
    }

    /// Refuses a value that is given and not among those that mean what is computed.
    pub(crate) fn only<T: PartialEq + Display>(
        &self,
        key: &str,
        found: Option<&T>,
        allowed: &[T],
    ) -> Result<(), EngineError> {
        match found {
            Some(value) if !allowed.contains(value) => {
                let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
                Err(self.unsupported(key, value, allowed.join(" or ")))
            }
            _ => Ok(()),
        }
    }
}

fn bad_eos(path: &Path) -> EngineError {
    EngineError::Config {
        file: path.to_owned(),
        message: "`eos_token_id` is neither a token id nor a list of token ids".to_owned(),
    }
}

fn token_ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(ids) => ids.iter().map(id).collect(),
        single => Some(vec![id(single)?]),
    }
}

/// Configs for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::ConfigFile;

    /// A config of a folder that is gone again.
    pub(crate) fn config(value: &serde_json::Value) -> ConfigFile {
        let dir = tempfile::TempDir::new().expect("a folder");
        std::fs::write(dir.path().join("config.json"), value.to_string()).expect("a config");
        ConfigFile::read(dir.path()).expect("valid JSON")
    }
}
