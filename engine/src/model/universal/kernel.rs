//! Scores, softmax and mixture, as each architecture composes them.

use half::{bf16, f16};
use mlx_rs::{Array, Dtype};

use super::spec::Kernel;
use crate::cache::{Rows, causal_mask};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::ops::{self, Mask};

/// Queries `[batch, heads, n, d]`, keys and values `[batch, kv_heads, keys, d]` to `[batch, heads, n, d]`
/// in the values' dtype; `newest` is the column of the newest key.
///
/// # Errors
/// [`EngineError::CacheForm`] for packed rows where [`Kernel::takes_packed`] says no.
pub(super) fn attend(
    kernel: Kernel,
    queries: &Array,
    rows: &Rows,
    scale: f64,
    mask: &Mask,
    newest: i32,
    fault: Option<Fault>,
) -> Result<Array, EngineError> {
    if kernel.takes_packed(queries.dtype()) {
        return fault::attention(fault, queries, rows, scale as f32, mask, newest);
    }
    let (keys, values) = rows.clone().plain()?;
    if let Kernel::Softcap(cap) = kernel {
        return softcapped([queries, &keys, &values], scale, cap, mask, newest, fault);
    }
    let wide = |a: &Array| ops::cast(a, Dtype::Float32);
    let rows = Rows::Plain { keys: wide(&keys)?, values: wide(&values)? };
    let mixed = fault::attention(fault, &wide(queries)?, &rows, scale as f32, mask, newest)?;
    ops::cast(&mixed, values.dtype())
}

impl Kernel {
    /// Whether attention hands keys and values on as the cache returns them, packed or not: the
    /// reference computes on the arrays of plain ones elsewhere, and raises on packed ones.
    pub(super) fn takes_packed(self, dtype: Dtype) -> bool {
        match self {
            Self::Fast => true,
            Self::F32ForF16 => dtype != Dtype::Float16,
            Self::F32 | Self::Softcap(_) => false,
        }
    }
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
        // A mask a sequence has no axis for groups: the reference aligns its sequences with the heads.
        let allowed =
            if grouped && allowed.ndim() == 4 { ops::expand_dims(&allowed, 2)? } else { allowed };
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
