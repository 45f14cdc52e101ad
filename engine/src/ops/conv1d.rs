//! `mx.conv1d`.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// How the taps of [`conv1d`] move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv1d {
    /// Positions from one output to the next.
    pub stride: i32,
    /// Zeros on each side.
    pub padding: i32,
    /// Positions from one tap to the next.
    pub dilation: i32,
    /// Channel groups that do not mix.
    pub groups: i32,
}

impl Default for Conv1d {
    fn default() -> Self {
        Self { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

/// `mx.conv1d`: x `[batch, length, in]` with taps w `[out, taps, in / groups]` to
/// `[batch, length', out]`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for channels that do not fit.
pub fn conv1d(x: &Array, w: &Array, conv: Conv1d) -> Result<Array, EngineError> {
    let Conv1d { stride, padding, dilation, groups } = conv;
    op("conv1d", mlx_rs::ops::conv1d(x, w, stride, padding, dilation, groups))
}
