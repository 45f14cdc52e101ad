//! Readers of the keys that most architectures share.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{ConfigFile, Dims, Extents, RopeConfig, RopeKeys, keys_of};
use crate::error::EngineError;

/// How an architecture lays its config out: every key belongs to one of these, or to a wire form of
/// its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Its extents.
    pub(super) extents: Extents,
    /// Its position encoding.
    pub(super) rope: Ropes,
    /// Keys that the reference does not read, each with the values, a JSON list, that mean what it
    /// computes. Null and absence always do.
    pub(super) neutral: &'static [(&'static str, &'static str)],
}

/// In [`Layout::neutral`]: every value.
pub(super) const ANY: &str = "any";

/// In [`Layout::neutral`]: the names of silu.
pub(super) const SILU: &str = r#"["silu", "swish"]"#;

/// In [`Layout::neutral`]: the name of the tanh form of gelu.
pub(super) const GELU_TANH: &str = r#"["gelu_pytorch_tanh"]"#;

/// How an architecture reads its position encoding: `rope_theta`, `rope_scaling`, `rope_parameters`,
/// `partial_rotary_factor`, `rope_traditional`. What a reference does not read of them is taken as
/// transformers means it ([`RopeConfig::read`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Ropes {
    /// The base where no key gives one; none where one must.
    pub(super) default_theta: Option<f64>,
    /// The rotated share of a head where no key gives one; none where it is the whole head.
    pub(super) default_partial: Option<f64>,
    /// `original_max_position_embeddings` where the key is missing; none where there is no such key.
    pub(super) default_original: Option<usize>,
    /// Whether neighbours pair up where no key says.
    pub(super) traditional: bool,
    /// Whether `rope_traditional` can say otherwise.
    pub(super) may_be_traditional: bool,
    /// Subkeys of the objects that the architecture reads itself.
    pub(super) also: &'static [&'static str],
}

const ORIGINAL: &str = "original_max_position_embeddings";

impl Ropes {
    /// llama's.
    pub(super) const LLAMA: Self = Self {
        default_theta: Some(10_000.0),
        default_partial: None,
        default_original: None,
        traditional: false,
        may_be_traditional: true,
        also: &[],
    };

    fn keys(&self) -> Vec<&'static str> {
        let mut keys = vec![
            "rope_theta",
            "rope_scaling",
            "rope_parameters",
            "partial_rotary_factor",
            "rope_traditional",
        ];
        keys.extend(self.default_original.map(|_| ORIGINAL));
        keys
    }

    fn read(&self, file: &ConfigFile, limit: Option<usize>) -> Result<RopeConfig, EngineError> {
        let traditional = match file.get("rope_traditional") {
            None => self.traditional,
            Some(Value::Bool(given)) if self.may_be_traditional || *given == self.traditional => {
                *given
            }
            Some(other) => {
                let wanted =
                    if self.may_be_traditional { "a boolean" } else { "what it always is" };
                return Err(file.unsupported("rope_traditional", other, wanted));
            }
        };
        let given = number(file, ORIGINAL)?.map(|original| original as usize);
        RopeConfig::read(
            file,
            &RopeKeys {
                theta: number(file, "rope_theta")?,
                default_theta: self.default_theta,
                partial: number(file, "partial_rotary_factor")?.or(self.default_partial),
                may_be_partial: self.default_partial.is_some(),
                objects: &[
                    ("rope_scaling", file.get("rope_scaling")),
                    ("rope_parameters", file.get("rope_parameters")),
                ],
                also: self.also,
                max_positions: limit,
                original: self.default_original.map(|default| given.unwrap_or(default)),
                traditional,
            },
        )
    }
}

impl Layout {
    /// llama's, with no neutral keys.
    pub(super) const LLAMA: Self =
        Self { extents: Extents::LLAMA, rope: Ropes::LLAMA, neutral: &[] };

    /// Every key this and the wire form read.
    pub(super) fn keys<Wire: DeserializeOwned>(&self) -> Vec<&'static str> {
        let neutral = self.neutral.iter().map(|(key, _)| *key).collect();
        [self.extents.keys(), self.rope.keys(), neutral, keys_of::<Wire>().to_vec()].concat()
    }

    /// Reads the extents, the position encoding and the wire form.
    ///
    /// # Errors
    /// [`EngineError::Config`] and [`EngineError::UnsupportedConfig`], naming the file and the key.
    pub(super) fn read<Wire: DeserializeOwned>(
        &self,
        file: &ConfigFile,
    ) -> Result<(Dims, RopeConfig, Wire), EngineError> {
        let (dims, rest) = self.extents.read(file)?;
        let rope = self.rope.read(file, dims.max_positions)?;
        for &(key, allowed) in self.neutral {
            refuse_other(file, key, allowed)?;
        }
        let neutral: Vec<&str> = self.neutral.iter().map(|(key, _)| *key).collect();
        let wire = rest.without(&self.rope.keys()).without(&neutral).wire()?;
        Ok((dims, rope, wire))
    }
}

fn number(file: &ConfigFile, key: &str) -> Result<Option<f64>, EngineError> {
    let Some(value) = file.get(key) else { return Ok(None) };
    value.as_f64().map(Some).ok_or_else(|| file.unsupported(key, value, "a number"))
}

fn refuse_other(file: &ConfigFile, key: &str, allowed: &str) -> Result<(), EngineError> {
    let Some(found) = file.get(key).filter(|_| allowed != ANY) else { return Ok(()) };
    let values: Vec<Value> = serde_json::from_str(allowed).map_err(|error| file.error(error))?;
    let wanted = values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    match values.contains(found) {
        true => Ok(()),
        false if wanted.is_empty() => Err(file.unsupported(key, found, "null")),
        false => Err(file.unsupported(key, found, wanted)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::config::testing::config;
    use crate::model::universal::archs::ARCHS;

    /// A list that is no JSON would refuse every value.
    #[test]
    fn neutral_values_are_json_lists() {
        for text in [super::SILU, super::GELU_TANH, "[false]", "[]"] {
            assert!(serde_json::from_str::<Vec<Value>>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_unread_key_is_refused_by_every_architecture() {
        for arch in ARCHS {
            let file = config(&json!({ "model_type": arch.model_type, "surprise": 1 }));
            let error = (arch.spec)(&file).expect_err("nothing reads it").to_string();
            assert!(error.contains("config.json"), "{error}");
        }
    }
}
