//! Look-ups. Indices are not checked here: MLX reads whatever lies at one outside the axis.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.take`: slices of `a` along `axis` at integer `indices`, whose shape replaces the axis.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn take(a: &Array, indices: &Array, axis: i32) -> Result<Array, EngineError> {
    op("take", a.take_axis(indices, axis))
}

/// `table[ids]`: rows of the leading axis, as `mx.take(table, ids, axis=0)`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn take_rows(table: &Array, ids: &Array) -> Result<Array, EngineError> {
    take(table, ids, 0)
}

/// `mx.take_along_axis`: one element of `a` along `axis` for each index; off the axis the shapes
/// broadcast.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn take_along_axis(a: &Array, indices: &Array, axis: i32) -> Result<Array, EngineError> {
    op("take_along_axis", a.take_along_axis(indices, axis))
}
