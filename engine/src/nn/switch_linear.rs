//! One linear layer an expert, each row through the experts its indices name:
//! `mlx_lm/models/switch_layers.py`.

use mlx_rs::{Array, Dtype};

use crate::error::EngineError;
use crate::ops::packed::{Packed, gather_qmm};
use crate::ops::{self, refused};

/// From this many picks on, rows are ordered by expert before the products.
const SORTED_FROM: usize = 64;

/// The matrices of all experts.
#[derive(Debug, Clone)]
pub enum Experts {
    /// Floats, `[experts, out, in]`. On the CPU MLX multiplies them in f32 only and throws for halves.
    Plain(Array),
    /// Packed along `in`.
    Packed(Packed),
}

/// `SwitchLinear` and `QuantizedSwitchLinear`: `x W[e]^T + b[e]` for each picked expert e.
#[derive(Debug)]
pub struct SwitchLinear {
    experts: Experts,
    bias: Option<Array>,
}

impl SwitchLinear {
    /// A layer of the given matrices and, if any, biases `[experts, out]`.
    pub fn new(experts: Experts, bias: Option<Array>) -> Self {
        Self { experts, bias }
    }

    /// x `[.., 1, in]`, whose leading axes broadcast with those of the integer `indices`, to
    /// `[.., 1, out]`. `sorted` promises that the indices ascend. Indices are not checked.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, for plain experts in halves on the CPU when the answer is
    /// evaluated.
    pub fn forward(&self, x: &Array, indices: &Array, sorted: bool) -> Result<Array, EngineError> {
        let product = match &self.experts {
            Experts::Plain(weight) => {
                let weight = ops::swap_axes(weight, -1, -2)?;
                ops::gather_mm(x, &weight, None, Some(indices), sorted)?
            }
            Experts::Packed(weight) => gather_qmm(x, weight, None, Some(indices), true, sorted)?,
        };
        let Some(bias) = &self.bias else { return Ok(product) };
        ops::add(&product, &ops::expand_dims(&ops::take_rows(bias, indices)?, -2)?)
    }
}

/// `SwitchGLU`: a gated feed-forward block an expert, `down(activation(gate(x)) * up(x))`.
#[derive(Debug)]
pub struct SwitchGlu {
    /// `[experts, inner, hidden]`.
    pub gate_proj: SwitchLinear,
    /// `[experts, inner, hidden]`.
    pub up_proj: SwitchLinear,
    /// `[experts, hidden, inner]`.
    pub down_proj: SwitchLinear,
    /// Applied to the gate; `ops::silu` for the reference's default `SwiGLU`.
    pub activation: fn(&Array) -> Result<Array, EngineError>,
}

/// Rows in the order of their experts.
pub(crate) struct GatherSort {
    /// `[picks, 1, hidden]`.
    pub(crate) rows: Array,
    /// The experts, ascending, `[picks]`.
    pub(crate) indices: Array,
    /// Where each pick's row went.
    inverse: Array,
}

impl SwitchGlu {
    /// x `[.., hidden]` through the experts of integer indices `[.., k]`: `[.., k, hidden]`. Hands
    /// `tap` each stage under its module's name in the reference, without `_proj`; with 64 picks or
    /// more their rows stand in the order of the experts.
    ///
    /// # Errors
    /// As [`SwitchLinear::forward`].
    pub fn forward(
        &self,
        x: &Array,
        indices: &Array,
        mut tap: impl FnMut(&str, &Array),
    ) -> Result<Array, EngineError> {
        let x = ops::expand_dims(&ops::expand_dims(x, -2)?, -2)?;
        let sorted = GatherSort::when_many(&x, indices)?;
        let (x, picks) = match &sorted {
            Some(sorted) => (&sorted.rows, &sorted.indices),
            None => (&x, indices),
        };
        let is_sorted = sorted.is_some();
        let up = self.up_proj.forward(x, picks, is_sorted)?;
        tap("up", &up);
        let gate = self.gate_proj.forward(x, picks, is_sorted)?;
        tap("gate", &gate);
        let inner = ops::multiply(&(self.activation)(&gate)?, &up)?;
        tap("activation", &inner);
        let out = self.down_proj.forward(&inner, picks, is_sorted)?;
        tap("down", &out);
        let out = match &sorted {
            None => out,
            Some(sorted) => sorted.unsort(&out, indices)?,
        };
        ops::squeeze(&out, -2)
    }
}

impl GatherSort {
    /// x `[.., 1, 1, hidden]`, each row once for each of its picks `[.., k]` (`_gather_sort`); none
    /// where there are too few picks to sort.
    pub(crate) fn when_many(x: &Array, indices: &Array) -> Result<Option<Self>, EngineError> {
        if indices.size() < SORTED_FROM {
            return Ok(None);
        }
        let Some(&picks) = indices.shape().last() else {
            return Err(refused("gather_sort", "indices without an axis", "1 or more axes"));
        };
        let flat = ops::reshape(indices, &[-1])?;
        let order = ops::argsort(&flat, -1)?;
        let inverse = ops::argsort(&order, -1)?;
        let row = ops::floor_divide(&order, &ops::cast(&Array::from_int(picks), Dtype::Uint32)?)?;
        let rows = ops::reshape(x, &[-1, 1, x.dim(-1)])?;
        Ok(Some(Self {
            rows: ops::take_rows(&rows, &row)?,
            indices: ops::take_rows(&flat, &order)?,
            inverse,
        }))
    }

    /// Rows `[picks, ..]` back in the order of the picks, `[.., k, ..]` (`_scatter_unsort`).
    pub(crate) fn unsort(&self, rows: &Array, indices: &Array) -> Result<Array, EngineError> {
        let rows = ops::take_rows(rows, &self.inverse)?;
        ops::reshape(&rows, &[indices.shape(), &rows.shape()[1..]].concat())
    }
}
