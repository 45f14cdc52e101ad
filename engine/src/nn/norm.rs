//! Norms over the last axis.

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
        Ok(Self { weight: one_plus(weight)?, eps })
    }

    /// What the normalised x is multiplied by, and what is added to its mean square.
    pub(crate) fn weight_and_eps(&self) -> (&Array, f32) {
        (&self.weight, self.eps)
    }

    /// Normalises the last axis of x.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn forward(&self, x: &Array) -> Result<Array, EngineError> {
        ops::rms_norm(x, &self.weight, self.eps)
    }
}

/// `nn.LayerNorm`, and nemotron's form of it, which multiplies by `weight + 1`.
#[derive(Debug)]
pub struct LayerNorm {
    weight: Array,
    bias: Option<Array>,
    eps: f32,
}

impl LayerNorm {
    /// `nn.LayerNorm`: the normalised x times `weight`, plus `bias` where there is one.
    pub fn new(weight: Array, bias: Option<Array>, eps: f32) -> Self {
        Self { weight, bias, eps }
    }

    /// `NemotronLayerNorm1P` of `mlx_lm/models/nemotron.py`: the normalised x times `weight + 1`, the
    /// sum rounded to the weight's dtype.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn one_plus(weight: &Array, bias: Option<Array>, eps: f32) -> Result<Self, EngineError> {
        Ok(Self { weight: one_plus(weight)?, bias, eps })
    }

    /// Normalises the last axis of x.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn forward(&self, x: &Array) -> Result<Array, EngineError> {
        ops::layer_norm(x, Some(&self.weight), self.bias.as_ref(), self.eps)
    }
}

fn one_plus(weight: &Array) -> Result<Array, EngineError> {
    let sum = ops::add(&ops::scalar(1.0, weight.dtype())?, weight)?;
    ops::eval([&sum])?;
    Ok(sum)
}
