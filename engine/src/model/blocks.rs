//! Pieces of models as functions of arrays, exactly as the networks compose them: what gradients are
//! checked on.

use std::cell::Cell;
use std::rc::Rc;

use mlx_rs::Array;

use super::dedicated::qwen3_5::recurrence;
use super::universal::router::{Choice, Picked, Side};
use crate::composition::Lora;
use crate::error::EngineError;
use crate::nn::{Experts, Residual, SwitchLinear};
use crate::ops::{self, Axes};

/// `y + (scale * (x A) B).astype(x.dtype)`: a linear layer's answer y `[.., out]` on x `[.., in]` with the
/// residual of an adapter, A `[in, rank]` and B `[rank, out]`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn low_rank(
    y: &Array,
    x: &Array,
    a: &Array,
    b: &Array,
    scale: f64,
) -> Result<Array, EngineError> {
    let lora = Rc::new(Cell::new(Lora::Cast));
    Residual { a: a.clone(), b: b.clone(), scale, lora }.add_to(y, x)
}

/// The gated delta rule over all positions, from the memory `[batch, value_heads, value_dim, key_dim]`
/// (f32): what the values are after each, `[batch, n, value_heads, value_dim]`, and the memory after the
/// last. q and k are `[batch, n, key_heads, key_dim]`, v `[batch, n, value_heads, value_dim]`, the decay g
/// (f32) and beta `[batch, n, value_heads]`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn gated_delta(
    [q, k, v]: [&Array; 3],
    g: &Array,
    beta: &Array,
    memory: &Array,
) -> Result<(Array, Array), EngineError> {
    let [q, k, v, g, beta] = [q, k, v, g, beta].map(Clone::clone);
    recurrence::run(&recurrence::Inputs { q, k, v, g, beta }, memory.clone())
}

/// Tokens `[n, hidden]` through the `picks` experts of the largest probabilities, whose weights are divided
/// by their sum: `Σ weight · x Wᵀ` over the picked W of `experts` `[experts, out, hidden]` (f32), with
/// logits `x · routerᵀ`, router `[experts, hidden]`: `[n, out]`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn routed(
    x: &Array,
    router: &Array,
    experts: &Array,
    picks: i32,
) -> Result<Array, EngineError> {
    let logits = ops::matmul(x, &ops::transpose(router, &[1, 0])?)?;
    let choice = Choice::SoftmaxThenTop { side: Side::Last, normalised: true };
    let Picked { experts: picked, weights } = choice.pick(&logits, None, picks)?;
    let rows = ops::expand_dims(&ops::expand_dims(x, -2)?, -2)?;
    let layer = SwitchLinear::new(Experts::Plain(experts.clone()), None);
    let out = ops::squeeze(&layer.forward(&rows, &picked, false)?, -2)?;
    ops::sum(&ops::multiply(&out, &ops::expand_dims(&weights, -1)?)?, Axes::Of(&[-2]), false)
}
