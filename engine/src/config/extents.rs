//! The keys of `config.json` that give the extents, which most architectures name alike.

use serde_json::Value;

use super::{ConfigFile, Dims};
use crate::error::EngineError;

/// How an architecture reads its extents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extents {
    /// The key of the number of layers.
    pub layers: &'static str,
    /// The key of the norms' constant.
    pub eps: &'static str,
    /// Where the width of a head comes from.
    pub head_dim: HeadDim,
    /// Whether `num_key_value_heads` must be given; else it is `num_attention_heads`.
    pub needs_kv_heads: bool,
    /// What the reference's `ModelArgs` has where a key is missing.
    pub defaults: &'static [(&'static str, f64)],
}

/// Where the width of a head comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadDim {
    /// `head_dim`.
    Needed,
    /// `head_dim`, else `hidden_size / num_attention_heads`; 0 counts as missing.
    Optional,
    /// `hidden_size / num_attention_heads`; `head_dim` is taken only where it says the same.
    Derived,
}

impl Extents {
    /// llama's.
    pub(crate) const LLAMA: Self = Self {
        layers: "num_hidden_layers",
        eps: "rms_norm_eps",
        head_dim: HeadDim::Optional,
        needs_kv_heads: false,
        defaults: &[],
    };

    /// Every key this reads.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        vec![
            "model_type",
            "hidden_size",
            self.layers,
            "intermediate_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "vocab_size",
            "max_position_embeddings",
            self.eps,
        ]
    }

    /// The extents, and the config of the other keys.
    ///
    /// # Errors
    /// [`EngineError::Config`] and [`EngineError::UnsupportedConfig`], naming the file and the key.
    pub(crate) fn read(&self, file: &ConfigFile) -> Result<(Dims, ConfigFile), EngineError> {
        let needed = |key| self.whole(file, key)?.ok_or_else(|| missing(file, key));
        let (hidden_size, heads) = (needed("hidden_size")?, needed("num_attention_heads")?);
        let num_layers = needed(self.layers)?;
        if num_layers == 0 {
            return Err(file.unsupported(self.layers, 0, "1 or more"));
        }
        let kv_heads = self.whole(file, "num_key_value_heads")?;
        if self.needs_kv_heads && kv_heads.is_none() {
            return Err(missing(file, "num_key_value_heads"));
        }
        let eps = self.given(file, self.eps).ok_or_else(|| missing(file, self.eps))?;
        let eps_number = eps.as_f64().ok_or_else(|| file.unsupported(self.eps, eps, "a number"))?;
        let dims = Dims {
            hidden_size,
            num_layers,
            intermediate_size: needed("intermediate_size")?,
            heads,
            kv_heads: kv_heads.unwrap_or(heads),
            head_dim: self.head_width(file, hidden_size.checked_div(heads).unwrap_or(0))?,
            vocab_size: needed("vocab_size")?,
            max_positions: self.whole(file, "max_position_embeddings")?,
            eps: eps_number,
        };
        Ok((dims.checked_as(file, self.eps)?, file.without(&self.keys())))
    }

    fn head_width(&self, file: &ConfigFile, derived: usize) -> Result<usize, EngineError> {
        let given = self.whole(file, "head_dim")?;
        match self.head_dim {
            HeadDim::Needed => given.ok_or_else(|| missing(file, "head_dim")),
            HeadDim::Optional => Ok(given.filter(|width| *width != 0).unwrap_or(derived)),
            HeadDim::Derived => match given {
                Some(width) if width != derived => {
                    let wanted = format!("hidden_size / num_attention_heads = {derived}");
                    Err(file.unsupported("head_dim", width, wanted))
                }
                _ => Ok(derived),
            },
        }
    }

    /// The value of a key, or the reference's.
    fn given(&self, file: &ConfigFile, key: &str) -> Option<Value> {
        let default = self.defaults.iter().find(|(name, _)| *name == key);
        file.get(key).cloned().or_else(|| default.map(|(_, value)| Value::from(*value)))
    }

    fn whole(&self, file: &ConfigFile, key: &str) -> Result<Option<usize>, EngineError> {
        let Some(value) = self.given(file, key) else { return Ok(None) };
        let whole = |value: &Value| value.as_f64().filter(|number| number.fract() == 0.0);
        match whole(&value).filter(|number| (0.0..=1e15).contains(number)) {
            Some(number) => Ok(Some(number as usize)),
            None => Err(file.unsupported(key, &value, "a whole number")),
        }
    }
}

fn missing(file: &ConfigFile, key: &str) -> EngineError {
    file.error(format!("`{key}` is missing"))
}
