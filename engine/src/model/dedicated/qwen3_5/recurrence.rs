//! The gated delta rule, position by position: `gated_delta_ops` of `mlx_lm/models/gated_delta.py`,
//! which is the path the reference takes wherever there is no Metal.
//!
//! Its steps are compiled there; the eager composition gives the same bits on the CPU (measured in
//! f32 and bf16 for several widths; in f16 for the decay only).

use mlx_rs::{Array, Dtype};

use crate::error::EngineError;
use crate::ops::{self, Axes, SliceAxis};

/// The inputs of all positions of a call.
pub(in crate::model) struct Inputs {
    /// `[batch, n, key_heads, key_dim]`.
    pub(in crate::model) q: Array,
    /// As `q`.
    pub(in crate::model) k: Array,
    /// `[batch, n, value_heads, value_dim]`.
    pub(in crate::model) v: Array,
    /// How much of the memory stays, `[batch, n, value_heads]`, f32.
    pub(in crate::model) g: Array,
    /// How much of the correction is written, `[batch, n, value_heads]`.
    pub(in crate::model) beta: Array,
}

/// What the values are after each position, `[batch, n, value_heads, value_dim]` in q's dtype, and
/// the memory after the last, `[batch, value_heads, value_dim, key_dim]` in f32.
pub(in crate::model) fn run(inputs: &Inputs, memory: Array) -> Result<(Array, Array), EngineError> {
    let repeats = inputs.v.dim(2) / inputs.k.dim(2);
    let (q, k) = (repeat_heads(&inputs.q, repeats)?, repeat_heads(&inputs.k, repeats)?);
    let mut memory = memory;
    let mut read = Vec::with_capacity(q.dim(1) as usize);
    for t in 0..q.dim(1) {
        let [q, k, v] = [at(&q, t)?, at(&k, t)?, at(&inputs.v, t)?];
        let value;
        (value, memory) = step([&q, &k, &v], &at(&inputs.g, t)?, &at(&inputs.beta, t)?, &memory)?;
        read.push(value);
    }
    Ok((ops::stack(&read.iter().collect::<Vec<_>>(), 1)?, memory))
}

/// `_gated_delta_step_ops`: the memory decays, is corrected towards `v` where it is read by `k`, and
/// is read by `q`.
fn step(
    [q, k, v]: [&Array; 3],
    g: &Array,
    beta: &Array,
    memory: &Array,
) -> Result<(Array, Array), EngineError> {
    let last = |a: &Array| ops::expand_dims(a, -1);
    let (key, query) = (ops::expand_dims(k, -2)?, ops::expand_dims(q, -2)?);
    let memory = ops::multiply(memory, &last(&last(g)?)?)?;
    let known = ops::sum(&ops::multiply(&memory, &key)?, Axes::Of(&[-1]), false)?;
    let delta = ops::multiply(&ops::subtract(v, &known)?, &last(beta)?)?;
    let memory = ops::add(&memory, &ops::multiply(&key, &last(&delta)?)?)?;
    let read = ops::sum(&ops::multiply(&memory, &query)?, Axes::Of(&[-1]), false)?;
    Ok((ops::cast(&read, q.dtype())?, memory))
}

/// `a[:, t]`.
fn at(a: &Array, t: i32) -> Result<Array, EngineError> {
    let mut axes: Vec<SliceAxis> = a.shape().iter().map(|&n| SliceAxis::full(n)).collect();
    axes[1] = SliceAxis::range(t, t + 1);
    ops::squeeze(&ops::slice(a, &axes)?, 1)
}

/// `mx.repeat(a, repeats, -2)`, where it repeats at all.
fn repeat_heads(a: &Array, repeats: i32) -> Result<Array, EngineError> {
    if repeats == 1 {
        return Ok(a.clone());
    }
    let &[batch, n, heads, dim] = a.shape() else {
        return Err(ops::refused("repeat", &format!("{:?}", a.shape()), "four axes"));
    };
    let wide = ops::broadcast_to(&ops::expand_dims(a, 3)?, &[batch, n, heads, repeats, dim])?;
    ops::reshape(&wide, &[batch, n, heads * repeats, dim])
}

/// `compute_g`: `exp(-exp(A_log) * softplus(a + dt_bias))`, the exponentials in f32, the softplus in
/// the dtype of the sum.
pub(super) fn decay(a_log: &Array, a: &Array, dt_bias: &Array) -> Result<Array, EngineError> {
    let rate = ops::negative(&ops::exp(&ops::cast(a_log, Dtype::Float32)?)?)?;
    ops::exp(&ops::multiply(&rate, &ops::softplus(&ops::add(a, dt_bias)?)?)?)
}

/// `normalize_qk`: queries and keys divided by their lengths, and queries by the root of the key
/// width besides. RMS norm divides by the root of a mean, hence the powers and the scaled epsilon.
pub(super) fn normalize(
    q: &Array,
    k: &Array,
    key_dim: usize,
) -> Result<(Array, Array), EngineError> {
    let inverse = (key_dim as f64).powf(-0.5);
    let eps = (1e-6 * inverse.powi(2)) as f32;
    let unit = |x: &Array, scale: f64| {
        ops::multiply(&ops::scalar(scale, x.dtype())?, &ops::rms_norm(x, None, eps)?)
    };
    Ok((unit(q, inverse.powi(2))?, unit(k, inverse)?))
}
