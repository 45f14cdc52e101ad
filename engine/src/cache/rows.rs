//! What a layer attends to.

use mlx_rs::Array;

use super::Buffers;
use crate::composition::Route;
use crate::error::EngineError;
use crate::ops;
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

/// The sequences at some places of a buffer.
pub(super) fn pick(buffer: &Array, places: &[usize]) -> Result<Array, EngineError> {
    let places: Vec<i32> = places.iter().map(|&place| place as i32).collect();
    ops::take(buffer, &Array::from_slice(&places, &[places.len() as i32]), 0)
}

/// `extend` of the caches of several sequences: the buffers of two of them, each filled up to an index
/// and of so many sequences, as one whose rows are right-aligned at the greater index.
pub(super) fn side_by_side(
    buffers: [Option<&Buffers>; 2],
    places: [(i32, usize); 2],
) -> Result<Option<Buffers>, EngineError> {
    let Some(like) = buffers[0].or(buffers[1]) else { return Ok(None) };
    let index = places[0].0.max(places[1].0);
    let rows = buffers.iter().flatten().map(|buffers| buffers.capacity()).max().unwrap_or(0);
    let aligned = |at: usize| {
        let (filled, sequences) = places[at];
        let empty = |buffer: &Array| {
            ops::zeros(&[sequences as i32, buffer.dim(1), 0, buffer.dim(3)], buffer.dtype())
        };
        let own = buffers[at].map_or_else(|| like.map(empty), |own| Ok(own.clone()))?;
        own.map(|buffer| align(buffer, index - filled, rows))
    };
    let [first, second] = [aligned(0)?, aligned(1)?];
    Ok(Some(Buffers {
        keys: ops::concatenate(&[&first.keys, &second.keys], 0)?,
        values: ops::concatenate(&[&first.values, &second.values], 0)?,
    }))
}

/// A buffer behind `left` rows of zeros, cut or filled up to `rows`.
fn align(buffer: &Array, left: i32, rows: i32) -> Result<Array, EngineError> {
    let right = rows - buffer.dim(2) - left;
    let cut = if right < 0 {
        ops::rows_of_last_but_one(buffer, 0, buffer.dim(2) + right)?
    } else {
        buffer.clone()
    };
    let right = right.max(0);
    if left == 0 && right == 0 {
        return Ok(cut);
    }
    ops::pad(&cut, &[(0, 0), (0, 0), (left, right), (0, 0)])
}
