//! `rope_theta`, `rope_scaling`, `rope_parameters` and what belongs to them, as `initialize_rope` of
//! `mlx_lm/models/rope_utils.py` reads them.

mod object;
mod scaling;

use serde_json::Value;

use super::ConfigFile;
use crate::error::EngineError;
use crate::ops::RopeScaling;
pub(crate) use object::RopeObject;

/// A rotary position encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// The base of the geometric row of frequencies.
    pub base: f64,
    /// Whether neighbours pair up, rather than the two halves of a head.
    pub traditional: bool,
    /// What is done to the frequencies or the positions.
    pub scaling: RopeScaling,
    /// Share of a head's values that are rotated, the first ones.
    pub partial_rotary_factor: f64,
    /// `max_position_embeddings`, which dynamic and longrope scaling go by.
    pub max_positions: Option<usize>,
}

impl RopeConfig {
    /// All of a head, halves paired, no scaling.
    pub fn plain(base: f64) -> Self {
        Self {
            base,
            traditional: false,
            scaling: RopeScaling::Default,
            partial_rotary_factor: 1.0,
            max_positions: None,
        }
    }

    /// How many values of a head are rotated: `int(head_dim * partial_rotary_factor)`.
    pub fn rotated(&self, head_dim: usize) -> usize {
        (head_dim as f64 * self.partial_rotary_factor) as usize
    }

    /// What the keys of a config say together.
    ///
    /// # Errors
    /// [`EngineError::UnsupportedConfig`] where two of them contradict each other, or one is out of its
    /// range; [`EngineError::Config`] where the base is nowhere, or a subkey is read by nothing.
    pub fn read(file: &ConfigFile, keys: &RopeKeys) -> Result<Self, EngineError> {
        let mut merged = RopeObject { theta: keys.theta, partial: keys.partial, scaling: None };
        for &(name, value) in keys.objects {
            let Some(value) = value.filter(|value| !value.is_null()) else { continue };
            merged.merge(file, name, RopeObject::read(file, name, value, keys)?)?;
        }
        let base = merged.theta.or(keys.default_theta).ok_or_else(|| {
            let places: Vec<_> = keys.objects.iter().map(|(name, _)| *name).collect();
            file.error(format!("`rope_theta` is missing, here and in `{}`", places.join("`, `")))
        })?;
        if !(base > 0.0 && base.is_finite()) {
            return Err(file.unsupported("rope_theta", base, "a number above 0"));
        }
        let partial_rotary_factor = merged.partial.unwrap_or(1.0);
        let wanted = if keys.may_be_partial { "above 0, at most 1" } else { "1" };
        let in_range = partial_rotary_factor > 0.0 && partial_rotary_factor <= 1.0;
        if !in_range || (partial_rotary_factor < 1.0 && !keys.may_be_partial) {
            return Err(file.unsupported("partial_rotary_factor", partial_rotary_factor, wanted));
        }
        Ok(Self {
            base,
            traditional: keys.traditional,
            scaling: merged.scaling.unwrap_or(RopeScaling::Default),
            partial_rotary_factor,
            max_positions: keys.max_positions,
        })
    }
}

/// Where a config keeps its rotary encoding; what it lacks stays at its default.
#[derive(Debug, Default)]
pub struct RopeKeys<'a> {
    /// `rope_theta` of the config itself.
    pub theta: Option<f64>,
    /// The base where no key gives one; absent where one must.
    pub default_theta: Option<f64>,
    /// `partial_rotary_factor` of the config itself.
    pub partial: Option<f64>,
    /// Whether the architecture honours a `partial_rotary_factor`, wherever it stands.
    pub may_be_partial: bool,
    /// The objects, by key: `rope_scaling`, `rope_parameters`. All that are given must agree.
    pub objects: &'a [(&'a str, Option<&'a Value>)],
    /// Subkeys of the objects that the architecture reads itself.
    pub also: &'a [&'a str],
    /// `max_position_embeddings`.
    pub max_positions: Option<usize>,
    /// `original_max_position_embeddings` of the config itself.
    pub original: Option<usize>,
    /// Whether neighbours pair up.
    pub traditional: bool,
}
