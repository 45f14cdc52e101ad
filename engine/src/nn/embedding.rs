//! `nn.Embedding` and `nn.QuantizedEmbedding`.

use mlx_rs::{Array, Dtype};

use super::Weight;
use crate::error::EngineError;
use crate::model::HeadWeight;
use crate::ops;

/// A table of `[vocab, dims]`.
#[derive(Debug)]
pub struct Embedding {
    weight: Weight,
}

impl Embedding {
    /// A layer over the given table.
    pub fn new(weight: Weight) -> Self {
        Self { weight }
    }

    /// The rows of integer ids `[..]`: `[.., dims]`. Packed rows are unpacked after the look-up.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn forward(&self, ids: &Array) -> Result<Array, EngineError> {
        match &self.weight {
            Weight::Plain(table) => ops::take_rows(table.values(), ids),
            Weight::Affine { packed, scales, biases, packing } => ops::dequantize(
                &ops::take_rows(packed, ids)?,
                &ops::take_rows(scales, ids)?,
                &ops::take_rows(biases, ids)?,
                *packing,
            ),
        }
    }

    /// The table as an output projection: x `[.., dims]` to `[.., vocab]`.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn as_linear(&self, x: &Array) -> Result<Array, EngineError> {
        self.weight.apply(x)
    }

    /// The table as the matrix of a head.
    pub(crate) fn matrix(&self) -> HeadWeight {
        self.weight.matrix()
    }

    /// All rows in floats, `[vocab, dims]`.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn table(&self) -> Result<Array, EngineError> {
        match &self.weight {
            Weight::Plain(table) => Ok(table.values().clone()),
            Weight::Affine { packed, scales, biases, packing } => {
                ops::dequantize(packed, scales, biases, *packing)
            }
        }
    }

    /// The dtype of the rows.
    pub fn dtype(&self) -> Dtype {
        match &self.weight {
            Weight::Plain(table) => table.values().dtype(),
            Weight::Affine { scales, .. } => scales.dtype(),
        }
    }
}
