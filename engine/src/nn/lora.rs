//! The residual of a low-rank adapter (Hu et al., 2021), as `mlx_lm/tuner/lora.py` composes it.

use std::cell::Cell;
use std::rc::Rc;

use mlx_rs::{Array, Dtype};

use crate::array::read;
use crate::composition::Lora;
use crate::error::EngineError;
use crate::ops::{self, Axes};

/// `scale * (x A) B`.
#[derive(Debug, Clone)]
pub(crate) struct Residual {
    /// `lora_a`, `[in, rank]`, in the adapter's dtype.
    pub(crate) a: Array,
    /// `lora_b`, `[rank, out]`, in the adapter's dtype.
    pub(crate) b: Array,
    /// Multiplies the product; not 0.
    pub(crate) scale: f64,
    /// What becomes of it at the next call.
    pub(crate) lora: Rc<Cell<Lora>>,
}

/// What fusing an adapter cost one layer: the fused weight against the sum of the weight and the
/// adapter's product that was neither rounded nor packed, both in f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusionLoss {
    /// The greatest absolute difference.
    pub max: f64,
    /// The mean absolute difference.
    pub mean: f64,
}

impl FusionLoss {
    /// Of two arrays of one shape.
    pub(crate) fn between(a: &Array, b: &Array) -> Result<Self, EngineError> {
        let wide = |a: &Array| ops::cast(a, Dtype::Float32);
        let difference = ops::abs(&ops::subtract(&wide(a)?, &wide(b)?)?)?;
        let number = |a: &Array| -> Result<f64, EngineError> {
            Ok(read::<f32>("a difference", a)?.first().copied().map_or(f64::NAN, f64::from))
        };
        Ok(Self {
            max: number(&ops::max(&difference, Axes::All, false)?)?,
            mean: number(&ops::mean(&difference, Axes::All, false)?)?,
        })
    }
}

impl Residual {
    /// `y + (scale * z).astype(x.dtype)` with `z = (x @ lora_a) @ lora_b`, for x `[.., in]` and y
    /// `[.., out]`; without the cast where so told.
    pub(crate) fn add_to(&self, y: &Array, x: &Array) -> Result<Array, EngineError> {
        let z = ops::matmul(&ops::matmul(x, &self.a)?, &self.b)?;
        let z = ops::multiply(&ops::scalar(self.scale, z.dtype())?, &z)?;
        match self.lora.get() {
            Lora::Cast => ops::add(y, &ops::cast(&z, x.dtype())?),
            Lora::Uncast => ops::add(y, &z),
        }
    }

    /// `((scale * lora_b.T) @ lora_a.T).astype(dtype)`, `[out, in]`.
    pub(crate) fn delta(&self, dtype: Dtype) -> Result<Array, EngineError> {
        let b = ops::transpose(&self.b, &[1, 0])?;
        let b = ops::multiply(&ops::scalar(self.scale, b.dtype())?, &b)?;
        ops::cast(&ops::matmul(&b, &ops::transpose(&self.a, &[1, 0])?)?, dtype)
    }

    /// How far `fused` is from `weight` plus the product.
    pub(crate) fn loss(&self, weight: &Array, fused: &Array) -> Result<FusionLoss, EngineError> {
        let wide = |a: &Array| ops::cast(a, Dtype::Float32);
        let wide_self = Self {
            a: wide(&self.a)?,
            b: wide(&self.b)?,
            scale: self.scale,
            lora: Rc::clone(&self.lora),
        };
        let sum = ops::add(&wide(weight)?, &wide_self.delta(Dtype::Float32)?)?;
        FusionLoss::between(&sum, fused)
    }
}
