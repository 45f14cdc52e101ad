//! Softmax and its normaliser.

use mlx_rs::Array;

use super::{Axes, logsumexp};
use crate::error::{EngineError, op};

/// `mx.softmax` over the last axis; `precise` computes in f32 and rounds once at the end.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn softmax(a: &Array, precise: bool) -> Result<Array, EngineError> {
    softmax_axis(a, -1, precise)
}

/// `mx.softmax` over one axis; `precise` as for [`softmax`].
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn softmax_axis(a: &Array, axis: i32, precise: bool) -> Result<Array, EngineError> {
    op("softmax", mlx_rs::ops::softmax_axis(a, axis, precise))
}

/// `mx.logsumexp(a, keepdims=True)` over all axes.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn log_sum_exp(a: &Array) -> Result<Array, EngineError> {
    logsumexp(a, Axes::All, true)
}
