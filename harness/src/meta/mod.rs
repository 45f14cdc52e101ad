//! Checks of a model against itself: another way to the same answer, and a config that must matter.
//!
//! A case names a model and a prompt; each entry of its `paths` and of its `config` is one check.

mod budget;
mod config;
mod fuzz;
pub mod matrix;
mod path;

use serde::{Deserialize, Serialize};

pub use self::{
    budget::{Budget, Kept},
    config::{ConfigChange, Effect},
    fuzz::{BatchOperation, Forgets, Fuzz, Operation, Sequence},
    matrix::{CacheKind, Cell, Column, Listed, Matrix},
    path::{NEAR, Path, Relation, Route},
};
use crate::case::Prompt;

/// A model asked the same thing in several ways (tier meta).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetaCase {
    /// A name from `goldens/models.toml`.
    pub model: String,
    /// The prompt.
    pub prompt: Prompt,
    /// Backends on which [`Relation::Bits`] has been measured to hold; elsewhere
    /// [`Relation::Close`] is what such a check is held to.
    pub bits_on: Vec<String>,
    /// Part of `verify --quick`.
    #[serde(default)]
    pub quick: bool,
    /// How every cache of keys and values is packed; absent, none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvPacking>,
    /// Tokens behind a cut that are run one by one at most; absent, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_by_one: Option<usize>,
    /// Other ways to the logits of the prompt.
    pub paths: Vec<Path>,
    /// Changes of the config.
    pub config: Vec<ConfigChange>,
    /// Random sequences of operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuzz: Option<Fuzz>,
}

/// How keys and values are packed, `affine` along the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvPacking {
    /// Bits a value.
    pub bits: i32,
    /// Values that share a scale and a bias.
    pub group: i32,
}

impl MetaCase {
    /// Names of the checks, in the order they run.
    pub fn checks(&self) -> Vec<String> {
        let paths = self.paths.iter().map(|path| path.route.name());
        let config = self.config.iter().map(|change| format!("config/{}", change.name));
        let seeds = self.fuzz.iter().flat_map(Fuzz::seeds).map(|seed| format!("seed-{seed:04}"));
        paths.chain(config).chain(seeds).collect()
    }
}
