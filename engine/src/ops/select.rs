//! Choice between values.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.where`: `a` where `condition` is true (not zero), otherwise `b`; the three broadcast together.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
pub fn select(condition: &Array, a: &Array, b: &Array) -> Result<Array, EngineError> {
    op("where", mlx_rs::ops::select(condition, a, b))
}

/// `mx.clip` to the closed range from `low` to `high`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn clip(a: &Array, low: &Array, high: &Array) -> Result<Array, EngineError> {
    op("clip", mlx_rs::ops::clip(a, (low, high)))
}
