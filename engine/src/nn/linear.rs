//! `nn.Linear` and `nn.QuantizedLinear`, and the LoRA residual beside either.

use std::cell::RefCell;
use std::rc::Rc;

use mlx_rs::Array;

use super::lora::{FusionLoss, Residual};
use crate::error::EngineError;
use crate::model::HeadWeight;
use crate::ops::packed::{self, Mode, Packed};
use crate::ops::{self, Affine};

/// A matrix `[out, in]`, plain or packed.
#[derive(Debug)]
pub enum Weight {
    /// Float values.
    Plain(Matrix),
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

/// Float values `[out, in]`, and the view that products take: it is made once, not at every call.
#[derive(Debug)]
pub struct Matrix {
    values: Array,
    transposed: Array,
}

impl Matrix {
    /// The matrix of the given values.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, as for values that have not two axes.
    pub fn new(values: Array) -> Result<Self, EngineError> {
        let transposed = ops::transpose(&values, &[1, 0])?;
        Ok(Self { values, transposed })
    }

    /// `[out, in]`.
    pub fn values(&self) -> &Array {
        &self.values
    }
}

impl Weight {
    /// x `[.., in]` times the transposed matrix: `[.., out]`.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn apply(&self, x: &Array) -> Result<Array, EngineError> {
        match self {
            Self::Plain(matrix) => ops::matmul(x, &matrix.transposed),
            Self::Affine { packed, scales, biases, packing } => {
                ops::quantized_matmul(x, packed, scales, biases, *packing)
            }
        }
    }

    /// The values `[out, in]`; of a packed matrix in its scales' dtype.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn values(&self) -> Result<Array, EngineError> {
        match self {
            Self::Plain(matrix) => Ok(matrix.values.clone()),
            Self::Affine { packed, scales, biases, packing } => {
                ops::dequantize(packed, scales, biases, *packing)
            }
        }
    }

    /// Other values `[out, in]`, packed as these are.
    fn like(&self, values: Array) -> Result<Self, EngineError> {
        let Self::Affine { packing, .. } = self else {
            return Ok(Self::Plain(Matrix::new(values)?));
        };
        let Packed { words, scales, biases, .. } =
            packed::quantize(&values, Mode::Affine(*packing), None)?;
        let biases = biases
            .ok_or_else(|| ops::refused("quantize", "no biases", "biases, in mode affine"))?;
        Ok(Self::Affine { packed: words, scales, biases, packing: *packing })
    }

    /// `[out, in]`.
    fn shape(&self) -> [i32; 2] {
        match self {
            Self::Plain(Matrix { values, .. }) => [values.dim(0), values.dim(1)],
            Self::Affine { scales, packing, .. } => {
                [scales.dim(0), scales.dim(1) * packing.group_size]
            }
        }
    }

    /// The same as the matrix of a head.
    pub(super) fn matrix(&self) -> HeadWeight {
        match self {
            Self::Plain(matrix) => HeadWeight::Plain(matrix.values.clone()),
            Self::Affine { packed, scales, biases, packing } => HeadWeight::Packed {
                words: packed.clone(),
                scales: scales.clone(),
                biases: biases.clone(),
                packing: *packing,
            },
        }
    }

    fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Plain(matrix) => vec![&matrix.values],
            Self::Affine { packed, scales, biases, .. } => vec![packed, scales, biases],
        }
    }
}

/// `x W^T + b`, and the residual of an adapter while one is mounted.
#[derive(Debug)]
pub struct Linear(Rc<RefCell<State>>);

/// An affine-quantized matrix `[out, in]`.
#[derive(Debug, Clone)]
pub(crate) struct PackedWeight {
    /// `[out, in * bits / 32]`, u32.
    pub(crate) words: Array,
    /// `[out, in / group_size]`.
    pub(crate) scales: Array,
    /// `[out, in / group_size]`.
    pub(crate) biases: Array,
    /// How the values are packed.
    pub(crate) packing: Affine,
}

#[derive(Debug)]
struct State {
    weight: Weight,
    bias: Option<Array>,
    residual: Option<Residual>,
    /// The weight before an adapter was fused into it.
    unfused: Option<(Weight, Residual)>,
}

impl Linear {
    /// A layer of the given weight and, if any, bias `[out]`.
    pub fn new(weight: Weight, bias: Option<Array>) -> Self {
        Self(Rc::new(RefCell::new(State { weight, bias, residual: None, unfused: None })))
    }

    /// x `[.., in]` to `[.., out]`. A plain weight takes its bias in `mx.addmm`, a quantized one in a
    /// separate addition, as the reference does; the residual of an adapter comes after both.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn forward(&self, x: &Array) -> Result<Array, EngineError> {
        let state = self.0.borrow();
        let y = match (&state.weight, &state.bias) {
            (weight, None) => weight.apply(x)?,
            (Weight::Plain(matrix), Some(bias)) => ops::addmm(bias, x, &matrix.transposed)?,
            (weight, Some(bias)) => ops::add(&weight.apply(x)?, bias)?,
        };
        match &state.residual {
            Some(residual) => residual.add_to(&y, x),
            None => Ok(y),
        }
    }

    /// The weight where it is all there is of the layer: affine-quantized, without bias and residual.
    pub(crate) fn packed(&self) -> Option<PackedWeight> {
        let state = self.0.borrow();
        match &state.weight {
            Weight::Affine { packed, scales, biases, packing }
                if state.bias.is_none() && state.residual.is_none() =>
            {
                Some(PackedWeight {
                    words: packed.clone(),
                    scales: scales.clone(),
                    biases: biases.clone(),
                    packing: *packing,
                })
            }
            _ => None,
        }
    }

    /// The weight where it is all there is of the layer, without bias and residual.
    pub(crate) fn matrix(&self) -> Option<HeadWeight> {
        let state = self.0.borrow();
        (state.bias.is_none() && state.residual.is_none()).then(|| state.weight.matrix())
    }

    /// A handle by which adapters reach the layer.
    pub(crate) fn slot(&self) -> Slot {
        Slot(Rc::clone(&self.0))
    }
}

/// Reaches a layer that lives in a network, to change what adapters change of it.
#[derive(Debug, Clone)]
pub(crate) struct Slot(Rc<RefCell<State>>);

impl Slot {
    /// `[out, in]`.
    pub(crate) fn shape(&self) -> [i32; 2] {
        self.0.borrow().weight.shape()
    }

    /// Puts a residual, or none, in the place of the one that is mounted.
    pub(crate) fn mount(&self, residual: Option<Residual>) {
        self.0.borrow_mut().residual = residual;
    }

    /// `LoRALinear.fuse` of `mlx_lm/tuner/lora.py`: the residual's product becomes part of the weight,
    /// rounded to its dtype and packed as it was. None without a residual.
    pub(crate) fn fuse(&self) -> Result<Option<FusionLoss>, EngineError> {
        let mut state = self.0.borrow_mut();
        let Some(residual) = &state.residual else { return Ok(None) };
        let before = state.weight.values()?;
        let sum = ops::add(&before, &residual.delta(before.dtype())?)?;
        let fused = state.weight.like(sum)?;
        ops::eval(fused.arrays())?;
        let loss = residual.loss(&before, &fused.values()?)?;
        let before = std::mem::replace(&mut state.weight, fused);
        state.unfused = state.residual.take().map(|residual| (before, residual));
        Ok(Some(loss))
    }

    /// Takes the weight from before [`Slot::fuse`] back, and mounts the residual again.
    pub(crate) fn unfuse(&self) {
        let mut state = self.0.borrow_mut();
        if let Some((weight, residual)) = state.unfused.take() {
            state.weight = weight;
            state.residual = Some(residual);
        }
    }
}
