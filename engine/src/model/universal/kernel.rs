//! Scores, softmax and mixture, as each architecture composes them.

use half::{bf16, f16};
use mlx_rs::{Array, Dtype};

use super::spec::Kernel;
use crate::cache::causal_mask;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::ops::{self, Mask};

/// Queries `[batch, heads, n, d]`, keys and values `[batch, kv_heads, keys, d]` to `[batch, heads, n, d]`
/// in the values' dtype; `newest` is the column of the newest key.
pub(super) fn attend(
    kernel: Kernel,
    qkv: [&Array; 3],
    scale: f64,
    mask: &Mask,
    newest: i32,
    fault: Option<Fault>,
) -> Result<Array, EngineError> {
    let [queries, keys, values] = qkv;
    let wide = match kernel {
        Kernel::Fast => false,
        Kernel::F32 => true,
        Kernel::F32ForF16 => queries.dtype() == Dtype::Float16,
        Kernel::Softcap(cap) => return softcapped(qkv, scale, cap, mask, newest, fault),
    };
    if !wide {
        return fault::attention(fault, qkv, scale as f32, mask, newest);
    }
    let [queries, keys] = [ops::cast(queries, Dtype::Float32)?, ops::cast(keys, Dtype::Float32)?];
    let qkv = [&queries, &keys, &ops::cast(values, Dtype::Float32)?];
    let mixed = fault::attention(fault, qkv, scale as f32, mask, newest)?;
    ops::cast(&mixed, values.dtype())
}

/// `Attention` of `mlx_lm/models/gemma2.py`, op for op.
fn softcapped(
    [queries, keys, values]: [&Array; 3],
    scale: f64,
    cap: f64,
    mask: &Mask,
    newest: i32,
    fault: Option<Fault>,
) -> Result<Array, EngineError> {
    let dtype = queries.dtype();
    let times = |a: &Array, number: f64| ops::multiply(a, &ops::scalar(number, dtype)?);
    let late = fault::is(fault, Fault::ScaleAfter);
    let cap = fault::softcap(fault, cap);
    let [batch, heads, count, dims] = [0, 1, 2, 3].map(|axis| queries.dim(axis));
    let (kv_heads, seen) = (keys.dim(1), keys.dim(2));
    let grouped = heads > kv_heads;

    let mut queries = if late { queries.clone() } else { times(queries, scale)? };
    let (mut keys, mut values) = (keys.clone(), values.clone());
    if grouped {
        queries = ops::reshape(&queries, &[batch, kv_heads, heads / kv_heads, count, dims])?;
        keys = ops::expand_dims(&keys, 2)?;
        values = ops::expand_dims(&values, 2)?;
    }
    let scores = ops::matmul(&queries, &ops::swap_axes(&keys, -1, -2)?)?;
    let scores = ops::tanh(&ops::divide(&scores, &ops::scalar(cap, dtype)?)?)?;
    let mut scores = times(&scores, cap)?;
    if late {
        scores = times(&scores, scale)?;
    }
    if let Some(allowed) = explicit(&fault::mask(fault, mask, [count, seen, newest])?, count, seen)?
    {
        scores = ops::select(&allowed, &scores, &ops::scalar(lowest(dtype), dtype)?)?;
    }
    let mixed = ops::matmul(&fault::softmax(fault, &scores)?, &values)?;
    if grouped { ops::reshape(&mixed, &[batch, heads, count, dims]) } else { Ok(mixed) }
}

/// The mask as an array (`return_array=True`); none where all may be seen.
fn explicit(mask: &Mask, count: i32, seen: i32) -> Result<Option<Array>, EngineError> {
    Ok(match mask {
        Mask::Full => None,
        Mask::Causal => Some(causal_mask(count, seen - count, None)?),
        Mask::Allowed(allowed) => Some(allowed.clone()),
    })
}

/// `mx.finfo(dtype).min`.
fn lowest(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float16 => f16::MIN.to_f64(),
        Dtype::Bfloat16 => bf16::MIN.to_f64(),
        _ => f64::from(f32::MIN),
    }
}
