//! What each layer may attend to.

use super::ConfigFile;
use crate::error::EngineError;

/// What a layer may attend to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Every earlier position.
    Full,
    /// A window of the latest positions.
    Sliding,
}

impl LayerKind {
    /// The kind's name in `layer_types`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Sliding => "sliding_attention",
        }
    }
}

/// The kinds of `layer_types`, one a layer; at least one is full, and where any slides there is a
/// window to slide in.
pub(crate) fn layer_kinds(
    file: &ConfigFile,
    types: &[String],
    num_layers: usize,
    window: Option<usize>,
) -> Result<Vec<LayerKind>, EngineError> {
    let kinds: Vec<LayerKind> =
        types.iter().map(|name| kind(file, name)).collect::<Result<_, _>>()?;
    if kinds.len() != num_layers {
        let found = format!("{} entries long", kinds.len());
        let wanted = format!("num_hidden_layers = {num_layers} entries");
        return Err(file.unsupported("layer_types", found, wanted));
    }
    if !kinds.contains(&LayerKind::Full) {
        let wanted = "at least one `full_attention`";
        return Err(file.unsupported("layer_types", "all `sliding_attention`", wanted));
    }
    if kinds.contains(&LayerKind::Sliding) {
        let window =
            window.ok_or_else(|| file.error("`sliding_window` is missing, but layers slide"))?;
        if window == 0 || i32::try_from(window).is_err() {
            return Err(file.unsupported("sliding_window", window, "1 to 2147483647"));
        }
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
