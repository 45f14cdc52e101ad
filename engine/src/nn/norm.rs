//! RMS norms.

use mlx_rs::Array;

use crate::error::EngineError;
use crate::ops;

/// `nn.RMSNorm`, and gemma's form of it, which multiplies by `1 + weight`.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Array,
    eps: f32,
}

impl RmsNorm {
    /// `nn.RMSNorm`: the normalised x times `weight`.
    pub fn new(weight: Array, eps: f32) -> Self {
        Self { weight, eps }
    }

    /// `RMSNorm` of `mlx_lm/models/gemma3_text.py`: the normalised x times `1.0 + weight`, the sum
    /// rounded to the weight's dtype.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn one_plus(weight: &Array, eps: f32) -> Result<Self, EngineError> {
        let one = ops::scalar(1.0, weight.dtype())?;
        let weight = ops::add(&one, weight)?;
        ops::eval([&weight])?;
        Ok(Self { weight, eps })
    }

    /// Normalises the last axis of x.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn forward(&self, x: &Array) -> Result<Array, EngineError> {
        ops::rms_norm(x, &self.weight, self.eps)
    }
}
