//! What each layer of a gemma4 model is.

use super::rope;
use super::wire::WireGemma4Text;
use crate::config::{ConfigFile, LayerKind, RopeConfig};
use crate::error::EngineError;

/// The pattern of the reference where neither it nor `layer_types` is given.
const DEFAULT_PATTERN: usize = 5;

/// One layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemma4Layer {
    /// What it may attend to.
    pub kind: LayerKind,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Key and value heads; divides the query heads.
    pub kv_heads: usize,
    /// Where its keys and values come from.
    pub key_values: KeyValues,
    /// Its position encoding.
    pub rope: RopeConfig,
    /// Width of its feed-forward block.
    pub intermediate_size: usize,
}

/// Where a layer's keys and values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyValues {
    /// Projections of its own.
    Own,
    /// One projection of its own: values are the keys before norm and rope.
    OwnKeysOnly,
    /// Those of an earlier layer of its kind, this one counted from 0.
    Shared(usize),
}

/// Resolves every layer.
pub(super) fn read(
    file: &ConfigFile,
    wire: &WireGemma4Text,
) -> Result<Vec<Gemma4Layer>, EngineError> {
    let kinds = kinds(file, wire)?;
    let count = kinds.len();
    let own = count.saturating_sub(wire.num_kv_shared_layers);
    if own == 0 {
        let wanted = format!("less than num_hidden_layers = {count}");
        return Err(file.unsupported("num_kv_shared_layers", wire.num_kv_shared_layers, wanted));
    }
    let full = rope::read(file, wire, LayerKind::Full)?;
    let sliding = rope::read(file, wire, LayerKind::Sliding)?;
    rope::refuse_others(file, wire, [&full, &sliding])?;
    kinds
        .iter()
        .enumerate()
        .map(|(i, &kind)| {
            let values_are_keys = wire.attention_k_eq_v && kind == LayerKind::Full;
            let key_values = if i >= own {
                let donor = kinds[..own].iter().rposition(|donor| *donor == kind);
                KeyValues::Shared(donor.ok_or_else(|| no_donor(file, i, kind))?)
            } else if values_are_keys {
                KeyValues::OwnKeysOnly
            } else {
                KeyValues::Own
            };
            let double = wire.use_double_wide_mlp && i >= own;
            Ok(Gemma4Layer {
                kind,
                head_dim: head_dim(file, wire, kind)?,
                kv_heads: kv_heads(file, wire, values_are_keys)?,
                key_values,
                rope: if kind == LayerKind::Full { full.clone() } else { sliding.clone() },
                intermediate_size: wire.intermediate_size * if double { 2 } else { 1 },
            })
        })
        .collect()
}

fn no_donor(file: &ConfigFile, layer: usize, kind: LayerKind) -> EngineError {
    let found = format!("`{}` in layer {layer}, which shares keys and values", kind.name());
    file.unsupported("layer_types", found, "a kind that a layer before the sharing ones has")
}

fn head_dim(
    file: &ConfigFile,
    wire: &WireGemma4Text,
    kind: LayerKind,
) -> Result<usize, EngineError> {
    let global = wire.global_head_dim.filter(|dim| *dim > 0);
    let (LayerKind::Full, Some(dim)) = (kind, global) else { return Ok(wire.head_dim) };
    if !dim.is_multiple_of(2) || i32::try_from(dim).is_err() {
        return Err(file.unsupported("global_head_dim", dim, "an even number"));
    }
    Ok(dim)
}

fn kv_heads(
    file: &ConfigFile,
    wire: &WireGemma4Text,
    values_are_keys: bool,
) -> Result<usize, EngineError> {
    let global = wire.num_global_key_value_heads.filter(|_| values_are_keys);
    let Some(heads) = global else { return Ok(wire.num_key_value_heads) };
    if heads == 0 || !wire.num_attention_heads.is_multiple_of(heads) {
        let wanted = format!("a divisor of num_attention_heads = {}", wire.num_attention_heads);
        return Err(file.unsupported("num_global_key_value_heads", heads, wanted));
    }
    Ok(heads)
}

/// `layer_types`, or what `sliding_window_pattern` gives. The last layer must be a full one:
/// transformers makes it one whatever the config says, the reference does not.
fn kinds(file: &ConfigFile, wire: &WireGemma4Text) -> Result<Vec<LayerKind>, EngineError> {
    let count = wire.num_hidden_layers;
    let pattern = wire.sliding_window_pattern;
    if pattern == Some(0) {
        return Err(file.unsupported("sliding_window_pattern", 0, "at least 1"));
    }
    let by_pattern = |pattern: usize| -> Vec<LayerKind> {
        let full = |i: usize| i % pattern == pattern - 1;
        (0..count).map(|i| if full(i) { LayerKind::Full } else { LayerKind::Sliding }).collect()
    };
    let kinds = match &wire.layer_types {
        None => by_pattern(pattern.unwrap_or(DEFAULT_PATTERN)),
        Some(types) => types.iter().map(|name| kind(file, name)).collect::<Result<_, _>>()?,
    };
    if kinds.len() != count {
        let found = format!("{} entries long", kinds.len());
        let wanted = format!("num_hidden_layers = {count} entries");
        return Err(file.unsupported("layer_types", found, wanted));
    }
    if let Some(pattern) = pattern.filter(|pattern| kinds != by_pattern(*pattern)) {
        let wanted = "what `layer_types` says";
        return Err(file.unsupported("sliding_window_pattern", pattern, wanted));
    }
    if kinds.last() == Some(&LayerKind::Sliding) {
        let key = if wire.layer_types.is_some() { "layer_types" } else { "sliding_window_pattern" };
        return Err(file.unsupported(key, "a last layer that slides", "one that does not"));
    }
    Ok(kinds)
}

fn kind(file: &ConfigFile, name: &str) -> Result<LayerKind, EngineError> {
    [LayerKind::Full, LayerKind::Sliding].into_iter().find(|kind| kind.name() == name).ok_or_else(
        || {
            let wanted = "`full_attention` or `sliding_attention`";
            file.unsupported("layer_types", format!("`{name}`"), wanted)
        },
    )
}
