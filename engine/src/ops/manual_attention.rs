//! Attention op by op, every score in memory.

use mlx_rs::Array;

use super::attention::ScoreMask;
use super::packed::{causal_mask, masked};
use super::{expand_dims, matmul, multiply, refused, reshape, scalar, softmax, swap_axes};
use crate::error::EngineError;

/// `softmax(scale q k^T) v` under any mask, differentiable by all three: q `[b, heads, n, d]`, k and v
/// `[b, kv_heads, keys, d]` to `[b, heads, n, d]`, softmax in f32, the rest in q's dtype. These are the ops
/// that `mx.fast.scaled_dot_product_attention` is made of on the CPU, in their order. A query that sees no
/// key mixes all of them alike.
///
/// # Errors
/// [`EngineError::Op`] for shapes that do not fit and where MLX throws.
pub fn manual_sdpa(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    mask: ScoreMask,
) -> Result<Array, EngineError> {
    let (&[batch, heads, queries, width], &[_, kv_heads, keys, _]) = (q.shape(), k.shape()) else {
        let found = format!("queries {:?}, keys {:?}", q.shape(), k.shape());
        return Err(refused("manual_sdpa", &found, "4 axes each"));
    };
    if kv_heads < 1 || heads % kv_heads != 0 {
        let found = format!("{heads} heads");
        return Err(refused("manual_sdpa", &found, &format!("a multiple of {kv_heads} key heads")));
    }
    let repeats = heads / kv_heads;
    let grouped = repeats > 1;
    let mut q = multiply(&scalar(f64::from(scale), q.dtype())?, q)?;
    let (mut k, mut v) = (k.clone(), v.clone());
    if grouped {
        q = reshape(&q, &[batch, kv_heads, repeats, queries, width])?;
        (k, v) = (expand_dims(&k, 2)?, expand_dims(&v, 2)?);
    }
    let scores = matmul(&q, &swap_axes(&k, -1, -2)?)?;
    let scores = match mask {
        ScoreMask::None => scores,
        ScoreMask::Causal => masked(&scores, &causal_mask(queries, keys)?)?,
        ScoreMask::Array(mask) => masked(&scores, &by_head(mask, grouped, kv_heads, repeats)?)?,
    };
    let out = matmul(&softmax(&scores, true)?, &v)?;
    if grouped { reshape(&out, &[batch, heads, queries, -1]) } else { Ok(out) }
}

/// A mask with an axis of its own for the query heads that share a key head.
fn by_head(mask: &Array, grouped: bool, kv_heads: i32, repeats: i32) -> Result<Array, EngineError> {
    match *mask.shape() {
        _ if !grouped || mask.ndim() < 3 => Ok(mask.clone()),
        [batch, heads, queries, keys] if heads > 1 => {
            reshape(mask, &[batch, kv_heads, repeats, queries, keys])
        }
        [heads, queries, keys] if heads > 1 => reshape(mask, &[kv_heads, repeats, queries, keys]),
        _ => expand_dims(mask, -3),
    }
}
