//! What several config readers have in common.

use crate::config::{ConfigFile, Extents, keys_of};
use crate::error::EngineError;

/// A `#[serde(default)]` that is true.
pub(super) fn yes() -> bool {
    true
}

/// The keys of the extents and of an architecture's own wire form.
pub(super) fn all_keys<'de, T: serde::Deserialize<'de>>(extents: &Extents) -> Vec<&'static str> {
    [extents.keys(), keys_of::<T>().to_vec()].concat()
}

/// Refuses an activation that is none of the names the reference's own goes by.
pub(super) fn only_act(
    file: &ConfigFile,
    key: &str,
    found: Option<&String>,
    names: &[&str],
) -> Result<(), EngineError> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    file.only(key, found, &names)
}

/// The names of [`Activation::Silu`](super::super::spec::Activation::Silu).
pub(super) const SILU: &[&str] = &["silu", "swish"];

/// The names of [`Activation::GeluApprox`](super::super::spec::Activation::GeluApprox).
pub(super) const GELU_TANH: &[&str] = &["gelu_pytorch_tanh"];
