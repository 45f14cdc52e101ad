//! What several config readers have in common.

use crate::config::{ConfigFile, Dims, LayerKind};
use crate::error::EngineError;
use crate::model::universal::spec::{Activation, Drop};

/// A `#[serde(default)]` that is true.
pub(super) fn yes() -> bool {
    true
}

/// The gelu that a key names, as `ACT2FN` of transformers names them; `default` where it is absent.
pub(super) fn gelu(
    file: &ConfigFile,
    key: &str,
    found: Option<&String>,
    default: Activation,
) -> Result<Activation, EngineError> {
    match found.map(String::as_str) {
        None => Ok(default),
        Some("gelu") => Ok(Activation::Gelu),
        Some("gelu_new" | "gelu_fast" | "gelu_pytorch_tanh") => Ok(Activation::GeluApprox),
        Some(other) => {
            let wanted = "`gelu`, `gelu_new`, `gelu_fast` or `gelu_pytorch_tanh`";
            Err(file.unsupported(key, format!("`{other}`"), wanted))
        }
    }
}

/// Refuses heads that are not as wide together as the stream, which the reference needs.
pub(super) fn whole_heads(file: &ConfigFile, dims: &Dims) -> Result<(), EngineError> {
    if dims.heads * dims.head_dim == dims.hidden_size {
        return Ok(());
    }
    let found = format!("{} with num_attention_heads = {}", dims.head_dim, dims.heads);
    let wanted = format!("hidden_size = {} over num_attention_heads", dims.hidden_size);
    Err(file.unsupported("head_dim", found, wanted))
}

/// A window that a layer can slide in.
pub(super) fn window(file: &ConfigFile, positions: usize) -> Result<usize, EngineError> {
    if positions == 0 || i32::try_from(positions).is_err() {
        return Err(file.unsupported("sliding_window", positions, "1 to 2147483647"));
    }
    Ok(positions)
}

/// Refuses `layer_types` that say otherwise than the key by which the reference goes.
pub(super) fn only_kinds(
    file: &ConfigFile,
    types: Option<&Vec<String>>,
    kinds: &[LayerKind],
    key: &str,
) -> Result<(), EngineError> {
    let Some(types) = types else { return Ok(()) };
    if types.iter().eq(kinds.iter().map(|kind| kind.name())) {
        return Ok(());
    }
    Err(file.unsupported("layer_types", format!("{types:?}"), format!("what {key} gives")))
}

/// What the usual `sanitize` throws away: precomputed rope frequencies, and the head of a tied model.
pub(super) fn usual_drops(tied: bool) -> Vec<Drop> {
    if tied { vec![Drop::INV_FREQ, Drop::HEAD] } else { vec![Drop::INV_FREQ] }
}

/// Refuses a number that must be above zero and is not.
pub(super) fn above_zero(file: &ConfigFile, key: &str, number: f64) -> Result<(), EngineError> {
    if number > 0.0 && number.is_finite() {
        return Ok(());
    }
    Err(file.unsupported(key, number, "a number above 0"))
}

/// Refuses a config of the qwen family in which layers slide: its references have no window. A window
/// may be named where `use_sliding_window` closes it.
pub(super) fn nothing_slides(
    file: &ConfigFile,
    window: Option<usize>,
    types: Option<&Vec<String>>,
) -> Result<(), EngineError> {
    if file.get("use_sliding_window").is_none() {
        file.only("sliding_window", window.as_ref(), &[])?;
    }
    for kind in types.into_iter().flatten() {
        file.only("layer_types", Some(kind), &[LayerKind::Full.name().to_owned()])?;
    }
    Ok(())
}
