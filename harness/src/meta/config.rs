//! Changes of a model's config and what they must do.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One change of `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigChange {
    /// The check's name: the key, or the key and a word where one key has several checks.
    pub name: String,
    /// The key that is checked.
    pub key: String,
    /// Keys that are set, with their values.
    pub set: Map<String, Value>,
    /// Keys that are taken away.
    pub unset: Vec<String>,
    /// What must come of it.
    pub effect: Effect,
}

/// What a change of the config must do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Effect {
    /// The model loads and its logits are others, all finite.
    Moves,
    /// The model loads and its logits have the same bits.
    Same,
    /// The load is refused, with a message that has this in it.
    Refused(String),
}

impl ConfigChange {
    /// The changed text of a config.
    ///
    /// # Errors
    /// What the JSON reader says of a text that is no object.
    pub fn apply(&self, text: &str) -> Result<String, serde_json::Error> {
        let mut config: Map<String, Value> = serde_json::from_str(text)?;
        for key in &self.unset {
            config.remove(key);
        }
        config.extend(self.set.clone());
        serde_json::to_string_pretty(&config)
    }
}
