//! Look-ups.

use mlx_rs::Array;
use mlx_rs::ops::indexing::argmax_axis;

use crate::error::{EngineError, op};

/// `table[ids]`: rows of the leading axis, as `mx.take(table, ids, axis=0)`. Ids are not checked
/// here: MLX reads whatever lies at an id outside the table.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn take_rows(table: &Array, ids: &Array) -> Result<Array, EngineError> {
    op("take", table.take_axis(ids, 0))
}

/// `mx.argmax(a, axis=-1)`: u32, the first of equals.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn argmax_last(a: &Array) -> Result<Array, EngineError> {
    op("argmax", argmax_axis(a, -1, None))
}
