//! Matrix products.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.matmul`: `[.., m, k] x [.., k, n]` to `[.., m, n]`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for inner extents that differ.
pub fn matmul(a: &Array, b: &Array) -> Result<Array, EngineError> {
    op("matmul", a.matmul(b))
}

/// `mx.addmm`: `c + a x b`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for inner extents that differ.
pub fn addmm(c: &Array, a: &Array, b: &Array) -> Result<Array, EngineError> {
    op("addmm", mlx_rs::ops::addmm(c, a, b, None, None))
}
