//! Steps that networks written or generated for one architecture are composed of.

use mlx_rs::Array;

use crate::error::EngineError;
use crate::ops::{self, SliceAxis};

/// `[batch, n, heads * head_dim]` to `[batch, n, heads, head_dim]`.
pub(super) fn split(x: &Array, heads: i32) -> Result<Array, EngineError> {
    ops::reshape(x, &[x.dim(0), x.dim(1), heads, -1])
}

/// `[batch, heads, n, head_dim]` to `[batch, n, heads * head_dim]`.
pub(super) fn join(x: &Array) -> Result<Array, EngineError> {
    ops::reshape(&turn(x)?, &[x.dim(0), x.dim(2), -1])
}

/// Swaps positions and heads.
pub(super) fn turn(x: &Array) -> Result<Array, EngineError> {
    ops::transpose(x, &[0, 2, 1, 3])
}

/// x times a number that is rounded to x's dtype.
pub(super) fn times(x: &Array, number: f64) -> Result<Array, EngineError> {
    ops::multiply(x, &ops::scalar(number, x.dtype())?)
}

/// `[batch, n, layers * width]` to `[batch, n, layers, width]`.
pub(super) fn unflatten(x: &Array, layers: i32, width: i32) -> Result<Array, EngineError> {
    ops::reshape(x, &[x.dim(0), x.dim(1), layers, width])
}

/// `x[:, :, layer, :]` of x `[batch, n, layers, width]`.
pub(super) fn layer_slice(x: &Array, layer: i32) -> Result<Array, EngineError> {
    let mut axes: Vec<_> = x.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
    axes[2] = SliceAxis::range(layer, layer + 1);
    ops::squeeze(&ops::slice(x, &axes)?, 2)
}

/// `logit_softcap` of `mlx_lm/models/gemma4_text.py`: `tanh(x / bound) * bound`, each step rounded to
/// x's dtype, with `bound` as `mx.compile` holds it.
pub(super) fn compiled_softcap(x: &Array, bound: f64) -> Result<Array, EngineError> {
    let bound = ops::constant(bound, x.dtype())?;
    ops::multiply(&ops::tanh(&ops::divide(x, &bound)?)?, &bound)
}
