//! `mx.fast.rms_norm`.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.fast.rms_norm`: normalises the last axis by its root mean square (accumulated in f32) and
/// multiplies by `weight`, where there is one.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn rms_norm<'a>(
    x: &Array,
    weight: impl Into<Option<&'a Array>>,
    eps: f32,
) -> Result<Array, EngineError> {
    op("fast.rms_norm", mlx_rs::fast::rms_norm(x, weight.into(), eps))
}
