//! Attention on packed keys and values: as mlx-lm composes it, and tiled as mlx-optiq does.

use mlx_rs::{Array, Dtype};

use super::{Packed, quantized_matmul};
use crate::error::{EngineError, op};
use crate::ops::{
    Axes, ScoreMask, SliceAxis, add, arange, divide, exp, expand_dims, max, maximum, multiply,
    refused, reshape, scalar, select, slice, softmax, subtract, sum,
};

/// `quantized_scaled_dot_product_attention` of `mlx_lm/models/base.py`: q `[b, heads, n, d]`, packed k
/// and v `[b, kv_heads, keys, d]` to `[b, heads, n, d]`, softmax in f32, the rest in q's dtype.
///
/// # Errors
/// [`EngineError::Op`] for shapes that do not fit and where MLX throws.
pub fn scaled_dot_product_attention(
    q: &Array,
    k: &Packed,
    v: &Packed,
    scale: f32,
    mask: ScoreMask,
) -> Result<Array, EngineError> {
    let grouped = Grouped::new(q, k, v, scale)?;
    let scores = quantized_matmul(&grouped.q, &grouped.k, true)?;
    let scores = match mask {
        ScoreMask::None => scores,
        ScoreMask::Causal => masked(&scores, &causal(&scores)?)?,
        ScoreMask::Array(mask) if grouped.repeats && mask.ndim() > 3 => {
            masked(&scores, &expand_dims(mask, -3)?)?
        }
        ScoreMask::Array(mask) => masked(&scores, mask)?,
    };
    let out = quantized_matmul(&softmax(&scores, true)?, &grouped.v, false)?;
    grouped.restore(&out)
}

/// `_prefill_flashattn_n_tiled` of mlx-optiq's `runtime/fused_quant_sdpa.py`, with or without its
/// causal mask: keys in tiles of `tile`, a running maximum and sum, every step in q's dtype. Shapes as
/// [`scaled_dot_product_attention`].
///
/// # Errors
/// [`EngineError::Op`] for shapes that do not fit, a tile below 1, and where MLX throws.
pub fn tiled_attention(
    q: &Array,
    k: &Packed,
    v: &Packed,
    scale: f32,
    is_causal: bool,
    tile: i32,
) -> Result<Array, EngineError> {
    let grouped = Grouped::new(q, k, v, scale)?;
    let keys = grouped.k.words.dim(-2);
    if tile < 1 || keys < 1 {
        let found = format!("tiles of {tile} for {keys} keys");
        return Err(refused("tiled_attention", &found, "1 or more of each"));
    }
    let mask = is_causal.then(|| causal_mask(q.dim(-2), keys)).transpose()?;
    let mut running: Option<Running> = None;
    for start in (0..keys).step_by(tile as usize) {
        let range = SliceAxis::range(start, keys.min(start.saturating_add(tile)));
        let mut scores = quantized_matmul(&grouped.q, &rows(&grouped.k, range)?, true)?;
        if let Some(mask) = &mask {
            let queries = SliceAxis::full(mask.dim(0));
            scores = masked(&scores, &slice(mask, &[queries, range])?)?;
        }
        let values = rows(&grouped.v, range)?;
        running = Some(match running {
            None => Running::first(&scores, &values)?,
            Some(running) => running.next(&scores, &values)?,
        });
    }
    match running {
        Some(running) => grouped.restore(&divide(&running.out, &running.sum)?),
        None => Err(refused("tiled_attention", "no keys", "1 or more")),
    }
}

/// Operands with an axis of their own for the query heads that share a key head, where they do.
struct Grouped {
    q: Array,
    k: Packed,
    v: Packed,
    repeats: bool,
    shape: Vec<i32>,
}

impl Grouped {
    fn new(q: &Array, k: &Packed, v: &Packed, scale: f32) -> Result<Self, EngineError> {
        let (&[batch, heads, queries, width], &[_, kv_heads, _, _]) = (q.shape(), k.words.shape())
        else {
            let found = format!("queries {:?}, keys {:?}", q.shape(), k.words.shape());
            return Err(refused("quantized attention", &found, "4 axes each"));
        };
        if kv_heads < 1 || heads % kv_heads != 0 {
            let found = format!("{heads} heads");
            let wanted = format!("a multiple of {kv_heads} key heads");
            return Err(refused("quantized attention", &found, &wanted));
        }
        let shape = q.shape().to_vec();
        let q = multiply(q, &scalar(f64::from(scale), q.dtype())?)?;
        let repeats = heads / kv_heads;
        if repeats == 1 {
            return Ok(Self { q, k: k.clone(), v: v.clone(), repeats: false, shape });
        }
        let q = reshape(&q, &[batch, kv_heads, repeats, queries, width])?;
        let spread = |w: &Packed| w.map(|part| expand_dims(part, -3));
        Ok(Self { q, k: spread(k)?, v: spread(v)?, repeats: true, shape })
    }

    fn restore(&self, out: &Array) -> Result<Array, EngineError> {
        if !self.repeats {
            return Ok(out.clone());
        }
        let mut shape = self.shape.clone();
        shape[3] = out.dim(-1);
        reshape(out, &shape)
    }
}

/// What tiles so far have come to.
struct Running {
    max: Array,
    sum: Array,
    out: Array,
}

impl Running {
    fn first(scores: &Array, values: &Packed) -> Result<Self, EngineError> {
        let max = max(scores, Axes::Of(&[-1]), true)?;
        let weights = exp(&subtract(scores, &max)?)?;
        let sum = sum(&weights, Axes::Of(&[-1]), true)?;
        Ok(Self { max, sum, out: quantized_matmul(&weights, values, false)? })
    }

    fn next(self, scores: &Array, values: &Packed) -> Result<Self, EngineError> {
        let top = maximum(&self.max, &max(scores, Axes::Of(&[-1]), true)?)?;
        let factor = exp(&subtract(&self.max, &top)?)?;
        let weights = exp(&subtract(scores, &top)?)?;
        let sum = add(&multiply(&factor, &self.sum)?, &sum(&weights, Axes::Of(&[-1]), true)?)?;
        let added = quantized_matmul(&weights, values, false)?;
        let out = add(&multiply(&self.out, &factor)?, &added)?;
        Ok(Self { max: top, sum, out })
    }
}

/// Scores at the lowest number of their dtype where a boolean mask is false, or plus another mask.
pub(in crate::ops) fn masked(scores: &Array, mask: &Array) -> Result<Array, EngineError> {
    if mask.dtype() != Dtype::Bool {
        return add(scores, mask);
    }
    let lowest = match scores.dtype() {
        Dtype::Float16 => f64::from(half::f16::MIN),
        Dtype::Bfloat16 => f64::from(half::bf16::MIN),
        _ => f64::from(f32::MIN),
    };
    select(mask, scores, &scalar(lowest, scores.dtype())?)
}

fn causal(scores: &Array) -> Result<Array, EngineError> {
    causal_mask(scores.dim(-2), scores.dim(-1))
}

/// `[queries, keys]`, true where a key is not later than the query; the last query sees all keys.
pub(in crate::ops) fn causal_mask(queries: i32, keys: i32) -> Result<Array, EngineError> {
    let rows = expand_dims(&arange(keys - queries, keys)?, 1)?;
    op("greater_equal", rows.ge(expand_dims(&arange(0, keys)?, 0)?))
}

fn rows(w: &Packed, range: SliceAxis) -> Result<Packed, EngineError> {
    w.map(|part| {
        let mut axes: Vec<_> = part.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
        let at = axes.len() - 2;
        axes[at] = range;
        slice(part, &axes)
    })
}
