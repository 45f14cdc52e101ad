//! `mx.fast.rope`.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.fast.rope`: rotates the first `dims` of the last axis of x `[.., n, d]`; row i stands at
/// position `(offset + i) * scale`. `traditional` pairs neighbours, otherwise the two halves.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn rope(
    x: &Array,
    dims: i32,
    traditional: bool,
    base: f32,
    scale: f32,
    offset: i32,
) -> Result<Array, EngineError> {
    op("fast.rope", mlx_rs::fast::rope(x, dims, traditional, base, scale, offset, None))
}
