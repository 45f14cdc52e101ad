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

/// `mx.addmm` with factors: `beta * c + alpha * (a x b)`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for inner extents that differ.
pub fn addmm_scaled(
    c: &Array,
    a: &Array,
    b: &Array,
    alpha: f32,
    beta: f32,
) -> Result<Array, EngineError> {
    op("addmm", mlx_rs::ops::addmm(c, a, b, alpha, beta))
}

/// `mx.gather_mm`: products of matrices picked from `a` `[.., m, k]` and `b` `[.., k, n]` by integer
/// indices into their flattened batch axes, which broadcast together; without indices, in order.
/// `sorted` promises that the right indices ascend. Indices are not checked.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for inner extents that differ.
pub fn gather_mm(
    a: &Array,
    b: &Array,
    left: Option<&Array>,
    right: Option<&Array>,
    sorted: bool,
) -> Result<Array, EngineError> {
    op("gather_mm", mlx_rs::ops::gather_mm(a, b, left, right, sorted))
}
