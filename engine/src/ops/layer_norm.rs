//! `mx.fast.layer_norm`.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.fast.layer_norm`, as `nn.LayerNorm` calls it: the last axis less its mean, over its standard
/// deviation, then times `weight` and plus `bias`, where there are any.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn layer_norm(
    x: &Array,
    weight: Option<&Array>,
    bias: Option<&Array>,
    eps: f32,
) -> Result<Array, EngineError> {
    op("fast.layer_norm", mlx_rs::fast::layer_norm(x, weight, bias, eps))
}
