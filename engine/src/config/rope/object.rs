//! One object of rotary parameters.

use serde_json::{Map, Value};

use super::{RopeKeys, scaling};
use crate::config::ConfigFile;
use crate::error::EngineError;
use crate::ops::RopeScaling;

/// What one object says, or several that agree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RopeObject {
    /// `rope_theta`.
    pub theta: Option<f64>,
    /// `partial_rotary_factor`, except that of proportional scaling, which is part of the scaling.
    pub partial: Option<f64>,
    /// The scaling.
    pub scaling: Option<RopeScaling>,
}

impl RopeObject {
    /// Reads the object under the key `name`.
    pub(super) fn read(
        file: &ConfigFile,
        name: &str,
        value: &Value,
        keys: &RopeKeys,
    ) -> Result<Self, EngineError> {
        let Some(object) = value.as_object() else {
            return Err(file.unsupported(name, value, "an object or null"));
        };
        let mut reader =
            Reader { file, name, object, read: vec!["type", "rope_type", "rope_theta"] };
        let scaling = scaling::read(&mut reader, keys)?;
        let theta = reader.number("rope_theta")?;
        let partial = match scaling {
            RopeScaling::Proportional(_) => None,
            _ => reader.number("partial_rotary_factor")?,
        };
        reader.all_read(keys.also)?;
        Ok(Self { theta, partial, scaling: Some(scaling) })
    }

    /// Takes over what the object under `name` says, and refuses it where the two differ.
    pub(super) fn merge(
        &mut self,
        file: &ConfigFile,
        name: &str,
        other: Self,
    ) -> Result<(), EngineError> {
        if self.scaling.is_some() && self.scaling != other.scaling {
            let wanted = "the scaling that the config's other key says";
            return Err(file.unsupported(name, "another scaling", wanted));
        }
        self.scaling = other.scaling;
        let pairs = [
            ("rope_theta", &mut self.theta, other.theta),
            ("partial_rotary_factor", &mut self.partial, other.partial),
        ];
        for (key, mine, theirs) in pairs {
            if let (Some(mine), Some(theirs)) = (&mine, theirs) {
                file.only(&format!("{name}.{key}"), Some(&theirs), &[*mine])?;
            }
            *mine = mine.or(theirs);
        }
        Ok(())
    }
}

/// Takes subkeys out of an object and remembers which.
pub(super) struct Reader<'a> {
    pub(super) file: &'a ConfigFile,
    name: &'a str,
    object: &'a Map<String, Value>,
    read: Vec<&'static str>,
}

impl Reader<'_> {
    /// `type`, else `rope_type`, else `default`, as the reference looks them up.
    pub(super) fn kind(&self) -> Result<&str, EngineError> {
        for key in ["type", "rope_type"] {
            match self.object.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::String(kind)) if kind.is_empty() => {}
                Some(Value::String(kind)) => return Ok(kind),
                Some(other) => return Err(self.refuse(key, other, "a name")),
            }
        }
        Ok("default")
    }

    /// The value under a subkey, which counts as read from now on.
    pub(super) fn get(&mut self, key: &'static str) -> Option<&Value> {
        self.read.push(key);
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// A number above zero.
    pub(super) fn number(&mut self, key: &'static str) -> Result<Option<f64>, EngineError> {
        match self.get(key).cloned() {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|number| *number > 0.0) {
                Some(number) => Ok(Some(number)),
                None => Err(self.refuse(key, &value, "a number above 0")),
            },
        }
    }

    /// A number above zero that must be there.
    pub(super) fn need(&mut self, key: &'static str) -> Result<f64, EngineError> {
        self.number(key)?.ok_or_else(|| self.refuse(key, "absent", "a number above 0"))
    }

    pub(super) fn refuse(
        &self,
        key: &str,
        found: impl std::fmt::Display,
        wanted: impl std::fmt::Display,
    ) -> EngineError {
        self.file.unsupported(&format!("{}.{key}", self.name), found, wanted)
    }

    fn all_read(&self, also: &[&str]) -> Result<(), EngineError> {
        let unread = self
            .object
            .keys()
            .find(|key| !self.read.contains(&key.as_str()) && !also.contains(&key.as_str()));
        match unread {
            Some(key) => Err(self.file.error(format!("`{}.{key}` is read by nothing", self.name))),
            None => Ok(()),
        }
    }
}
