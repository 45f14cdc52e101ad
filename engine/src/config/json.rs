//! JSON objects in which a key stands once.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::EngineError;

/// Reads a file that holds one JSON object.
pub(super) fn read_object(path: &Path) -> Result<Map<String, Value>, EngineError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| EngineError::Io { file: path.to_owned(), source })?;
    let Object(object) = serde_json::from_str(&text).map_err(|error| EngineError::Config {
        file: path.to_owned(),
        message: error.to_string(),
    })?;
    Ok(object)
}

/// A JSON object; `serde_json::Map` alone would keep the last of two equal keys.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
        let mut object = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value()?;
            if object.insert(key.clone(), value).is_some() {
                return Err(A::Error::custom(format!("key `{key}` stands twice")));
            }
        }
        Ok(Object(object))
    }
}
