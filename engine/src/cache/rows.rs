//! What a layer attends to.

use mlx_rs::Array;

use crate::composition::Route;
use crate::error::EngineError;
use crate::ops::packed::Packed;

/// The keys and values that may be attended to, `[batch, kv_heads, positions, head_dim]`.
#[derive(Debug, Clone)]
pub enum Rows {
    /// Of a plain or a rotating cache.
    Plain {
        /// In the dtype they were given in.
        keys: Array,
        /// In the dtype they were given in.
        values: Array,
    },
    /// Of a quantized cache, packed along `head_dim`.
    Packed {
        /// Packed keys.
        keys: Packed,
        /// Packed values.
        values: Packed,
        /// How attention reads them.
        route: Route,
    },
}

impl Rows {
    /// Plain keys and values.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] where they are packed.
    pub fn plain(self) -> Result<(Array, Array), EngineError> {
        match self {
            Self::Plain { keys, values } => Ok((keys, values)),
            Self::Packed { .. } => Err(EngineError::CacheForm {
                found: "packed keys and values".to_owned(),
                wanted: "plain ones".to_owned(),
            }),
        }
    }

    /// Number of positions.
    pub fn positions(&self) -> i32 {
        match self {
            Self::Plain { keys, .. } => keys.dim(2),
            Self::Packed { keys, .. } => keys.words.dim(2),
        }
    }

    /// The rows as a layer without a cache of its own reads them: `_patched_sdpa` of mlx-optiq's
    /// `runtime/kv/rotating.py` gives packed ones to the untiled attention, whatever is installed.
    #[must_use]
    pub fn borrowed(self) -> Self {
        match self {
            Self::Packed { keys, values, .. } => Self::Packed { keys, values, route: Route::Stock },
            plain @ Self::Plain { .. } => plain,
        }
    }
}
