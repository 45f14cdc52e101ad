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
    /// The changed text of a config. A key `a.b` is the key `b` of the object under `a`, where there is
    /// one; elsewhere it is a key with a dot in it.
    ///
    /// # Errors
    /// What the JSON reader says of a text that is no object.
    pub fn apply(&self, text: &str) -> Result<String, serde_json::Error> {
        let mut config: Map<String, Value> = serde_json::from_str(text)?;
        for key in &self.unset {
            let (object, key) = place(&mut config, key);
            object.remove(key);
        }
        for (key, value) in &self.set {
            let (object, key) = place(&mut config, key);
            object.insert(key.to_owned(), value.clone());
        }
        serde_json::to_string_pretty(&config)
    }
}

/// The object that a key stands in, and its name there.
fn place<'a, 'k>(
    object: &'a mut Map<String, Value>,
    key: &'k str,
) -> (&'a mut Map<String, Value>, &'k str) {
    match key.split_once('.') {
        Some((outer, inner)) if object.get(outer).is_some_and(Value::is_object) => place(
            object.get_mut(outer).and_then(Value::as_object_mut).expect("checked above"),
            inner,
        ),
        _ => (object, key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dotted_key_reaches_into_an_object_where_there_is_one() {
        let change = ConfigChange {
            name: "x".to_owned(),
            key: "a.b.c".to_owned(),
            set: serde_json::from_str(r#"{"a.b.c": 1, "x.y": 2}"#).unwrap(),
            unset: vec!["a.d".to_owned()],
            effect: Effect::Same,
        };
        let changed = change.apply(r#"{"a": {"b": {}, "d": 3}, "x": 4}"#).unwrap();
        let wanted = serde_json::json!({"a": {"b": {"c": 1}}, "x": 4, "x.y": 2});
        assert_eq!(serde_json::from_str::<Value>(&changed).unwrap(), wanted);
    }
}
