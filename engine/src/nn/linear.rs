//! `nn.Linear` and `nn.QuantizedLinear`.

use mlx_rs::Array;

use crate::error::EngineError;
use crate::ops::{self, Affine};

/// A matrix `[out, in]`, plain or packed.
#[derive(Debug)]
pub enum Weight {
    /// Float values.
    Plain(Array),
    /// Affine-quantized values.
    Affine {
        /// `[out, in * bits / 32]`, u32.
        packed: Array,
        /// `[out, in / group_size]`.
        scales: Array,
        /// `[out, in / group_size]`.
        biases: Array,
        /// How the values are packed.
        packing: Affine,
    },
}

impl Weight {
    /// x `[.., in]` times the transposed matrix: `[.., out]`.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn apply(&self, x: &Array) -> Result<Array, EngineError> {
        match self {
            Self::Plain(weight) => ops::matmul(x, &ops::transpose(weight, &[1, 0])?),
            Self::Affine { packed, scales, biases, packing } => {
                ops::quantized_matmul(x, packed, scales, biases, *packing)
            }
        }
    }
}

/// `x W^T + b`.
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Array>,
}

impl Linear {
    /// A layer of the given weight and, if any, bias `[out]`.
    pub fn new(weight: Weight, bias: Option<Array>) -> Self {
        Self { weight, bias }
    }

    /// x `[.., in]` to `[.., out]`. A plain weight takes its bias in `mx.addmm`, a quantized one in a
    /// separate addition, as the reference does.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn forward(&self, x: &Array) -> Result<Array, EngineError> {
        match (&self.weight, &self.bias) {
            (weight, None) => weight.apply(x),
            (Weight::Plain(weight), Some(bias)) => {
                ops::addmm(bias, x, &ops::transpose(weight, &[1, 0])?)
            }
            (weight, Some(bias)) => ops::add(&weight.apply(x)?, bias),
        }
    }
}
