//! Affine-quantized weights: each group of values along the last axis shares a scale and a bias.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// How a matrix is packed: `group_size` values share a scale and a bias, `bits` bits a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affine {
    /// Values that share one scale and one bias.
    pub group_size: i32,
    /// Bits a value.
    pub bits: i32,
}

/// `mx.quantized_matmul(transpose=True, mode="affine")`: x `[.., k]`, packed w `[n, k * bits / 32]`
/// (u32), scales and biases `[n, k / group_size]` to `[.., n]`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn quantized_matmul(
    x: &Array,
    w: &Array,
    scales: &Array,
    biases: &Array,
    packing: Affine,
) -> Result<Array, EngineError> {
    op(
        "quantized_matmul",
        mlx_rs::ops::quantized_matmul(x, w, scales, biases, true, packing.group_size, packing.bits),
    )
}

/// `mx.dequantize(mode="affine")`: packed w `[.., k * bits / 32]` (u32) with scales and biases
/// `[.., k / group_size]` to `[.., k]` in the scales' dtype.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn dequantize(
    w: &Array,
    scales: &Array,
    biases: &Array,
    packing: Affine,
) -> Result<Array, EngineError> {
    op("dequantize", mlx_rs::ops::dequantize(w, scales, biases, packing.group_size, packing.bits))
}
