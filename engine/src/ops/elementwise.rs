//! Element by element ops. Two operands of different dtypes promote as in `mlx.core`.

use mlx_rs::{Array, Dtype};

use crate::error::{EngineError, op};

/// A zero-dimensional array of `dtype`, rounded as MLX's Python layer rounds a Python float beside
/// an array of that dtype: to f32 first, then to `dtype`. An `Array::from_f32` would be a strong
/// f32 and promote its partner.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn scalar(value: f64, dtype: Dtype) -> Result<Array, EngineError> {
    cast(&Array::from_f32(value as f32), dtype)
}

/// `mx.array.astype`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn cast(a: &Array, dtype: Dtype) -> Result<Array, EngineError> {
    op("astype", a.as_dtype(dtype))
}

/// `mx.add`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
pub fn add(a: &Array, b: &Array) -> Result<Array, EngineError> {
    op("add", a.add(b))
}

/// `mx.subtract`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
pub fn subtract(a: &Array, b: &Array) -> Result<Array, EngineError> {
    op("subtract", a.subtract(b))
}

/// `mx.multiply`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
pub fn multiply(a: &Array, b: &Array) -> Result<Array, EngineError> {
    op("multiply", a.multiply(b))
}

/// `mx.power`: a to the b.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
pub fn power(a: &Array, b: &Array) -> Result<Array, EngineError> {
    op("power", a.power(b))
}

/// `mx.sigmoid`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn sigmoid(a: &Array) -> Result<Array, EngineError> {
    op("sigmoid", mlx_rs::ops::sigmoid(a))
}

/// `mx.tanh`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn tanh(a: &Array) -> Result<Array, EngineError> {
    op("tanh", mlx_rs::ops::tanh(a))
}

/// `mx.clip` to the closed range from `low` to `high`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn clip(a: &Array, low: &Array, high: &Array) -> Result<Array, EngineError> {
    op("clip", mlx_rs::ops::clip(a, (low, high)))
}
