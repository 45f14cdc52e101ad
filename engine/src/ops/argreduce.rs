//! Positions of extremes, in u32; the first of equals.

use mlx_rs::Array;
use mlx_rs::ops::indexing::{argmax_axis, argmin_axis};

use crate::error::{EngineError, op};

/// `mx.argmax` along one axis.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn argmax(a: &Array, axis: i32, keep_dims: bool) -> Result<Array, EngineError> {
    op("argmax", argmax_axis(a, axis, keep_dims))
}

/// `mx.argmin` along one axis.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn argmin(a: &Array, axis: i32, keep_dims: bool) -> Result<Array, EngineError> {
    op("argmin", argmin_axis(a, axis, keep_dims))
}

/// `mx.argmax(a, axis=-1)`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn argmax_last(a: &Array) -> Result<Array, EngineError> {
    argmax(a, -1, false)
}
