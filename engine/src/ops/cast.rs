//! From one dtype to another.

use mlx_rs::{Array, Dtype};

use crate::error::{EngineError, op};

/// A zero-dimensional array of `dtype`, rounded as MLX's Python layer rounds a Python float beside
/// an array of that dtype: to f32 first, then to `dtype`, but for f64, which it is already. An
/// `Array::from_f32` would be a strong f32 and promote its partner.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn scalar(value: f64, dtype: Dtype) -> Result<Array, EngineError> {
    match dtype {
        Dtype::Float64 => Ok(Array::from_f64(value)),
        _ => cast(&Array::from_f32(value as f32), dtype),
    }
}

/// `mx.array.astype`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn cast(a: &Array, dtype: Dtype) -> Result<Array, EngineError> {
    op("astype", a.as_dtype(dtype))
}

/// `mx.to_fp8`: floats to E4M3 codes in a u8 array.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn to_fp8(a: &Array) -> Result<Array, EngineError> {
    op("to_fp8", a.to_fp8())
}

/// `mx.from_fp8`: E4M3 codes in a u8 array to floats of `dtype`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn from_fp8(codes: &Array, dtype: Dtype) -> Result<Array, EngineError> {
    op("from_fp8", codes.from_fp8(dtype))
}
