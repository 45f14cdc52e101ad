//! Running results along an axis.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.cumsum` along one axis; `reverse` runs from the end, and without `inclusive` each element sees
/// only those before it.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn cumsum(a: &Array, axis: i32, reverse: bool, inclusive: bool) -> Result<Array, EngineError> {
    op("cumsum", a.cumsum(axis, reverse, inclusive))
}

/// `mx.cummax` along one axis; arguments as [`cumsum`].
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn cummax(a: &Array, axis: i32, reverse: bool, inclusive: bool) -> Result<Array, EngineError> {
    op("cummax", a.cummax(axis, reverse, inclusive))
}
