//! Attention.

use mlx_rs::{Array, Dtype};

use super::Lent;
use super::mlp::projected;
use crate::cache::causal_mask;
use crate::error::EngineError;
use crate::grad::vjp;
use crate::ops::packed::{self, Mode, Packed};
use crate::ops::{self, Affine, Axes, Mask, Periods, RopeOffset, Rotation, ScoreMask};

/// `quantized_scaled_dot_product_attention` of `mlx_lm/models/base.py` for one query a head, which sees
/// the last `window` keys and the first `kept`.
pub(super) fn decode_sdpa(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let queries = of.array("queries")?;
    let packing = Affine { bits: of.integer("bits")?, group_size: of.integer("group")? };
    let packed = |name: &str| {
        let part = |suffix: &str| of.array(&format!("{name}_{suffix}"));
        Ok::<_, EngineError>(Packed {
            words: part("w")?,
            scales: part("scales")?,
            biases: Some(part("biases")?),
            mode: Mode::Affine(packing),
        })
    };
    let (keys, values) = (packed("keys")?, packed("values")?);
    let scale = of.number("scale")? as f32;
    let seen = keys.words.dim(2);
    let (window, kept) = (of.integer_or_zero("window"), of.integer_or_zero("kept"));
    let allowed = (window > 0 && window < seen).then(|| {
        let first = seen - window;
        let may: Vec<bool> = (0..seen).map(|key| key >= first || key < kept).collect();
        Array::from_slice(&may, &[1, seen])
    });
    if let Some(cap) = of.number("softcap").ok().filter(|&cap| cap != 0.0) {
        let mixed = softcapped(&queries, [&keys, &values], [f64::from(scale), cap], allowed)?;
        return Ok(vec![mixed]);
    }
    let mask = allowed.as_ref().map_or(ScoreMask::None, ScoreMask::Array);
    Ok(vec![packed::scaled_dot_product_attention(&queries, &keys, &values, scale, mask)?])
}

/// The same with scores `cap * tanh(score / cap)`, as `mlx_lm/models/gemma2.py` has them on plain rows.
fn softcapped(
    queries: &Array,
    [keys, values]: [&Packed; 2],
    [scale, cap]: [f64; 2],
    allowed: Option<Array>,
) -> Result<Array, EngineError> {
    let dtype = queries.dtype();
    let number = |number: f64| ops::scalar(number, dtype);
    let [batch, heads, count, d] = [0, 1, 2, 3].map(|axis| queries.dim(axis));
    let kv_heads = keys.words.dim(1);
    let q = ops::multiply(queries, &number(scale)?)?;
    let q = ops::reshape(&q, &[batch, kv_heads, heads / kv_heads, count, d])?;
    let spread = |of: &Packed| {
        let axis = |array: &Array| ops::expand_dims(array, 2);
        let biases = of.biases.as_ref().map(axis).transpose()?;
        let (words, scales) = (axis(&of.words)?, axis(&of.scales)?);
        Ok::<_, EngineError>(Packed { words, scales, biases, mode: of.mode })
    };
    let scores = packed::quantized_matmul(&q, &spread(keys)?, true)?;
    let bent = ops::tanh(&ops::divide(&scores, &number(cap)?)?)?;
    let mut scores = ops::multiply(&bent, &number(cap)?)?;
    if let Some(allowed) = allowed {
        scores = ops::select(&allowed, &scores, &number(f64::NEG_INFINITY)?)?;
    }
    let mixed = packed::quantized_matmul(&ops::softmax(&scores, true)?, &spread(values)?, false)?;
    ops::reshape(&mixed, &[batch, heads, count, d])
}

/// `mx.fast.scaled_dot_product_attention`, causal at the lower right and under a window where asked.
pub(super) fn flash(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let [queries, keys, values] = [of.array("queries")?, of.array("keys")?, of.array("values")?];
    let mask = mask(of, queries.dim(2), keys.dim(2))?;
    let scale = of.number("scale")? as f32;
    let mut results =
        vec![ops::scaled_dot_product_attention(&queries, &keys, &values, scale, &mask)?];
    if of.integer_or_zero("want_lse") != 0 {
        results.push(log_sums(&queries, &keys, scale, &mask)?);
    }
    Ok(results)
}

/// The logarithm of each query's sum of exponentials, f32 `[batch, heads, n]`.
fn log_sums(q: &Array, k: &Array, scale: f32, mask: &Mask) -> Result<Array, EngineError> {
    let [batch, heads, count, d] = [0, 1, 2, 3].map(|axis| q.dim(axis));
    let (kv_heads, seen) = (k.dim(1), k.dim(2));
    let wide = |a: &Array| ops::cast(a, Dtype::Float32);
    let q = ops::multiply(&wide(q)?, &ops::scalar(f64::from(scale), Dtype::Float32)?)?;
    let q = ops::reshape(&q, &[batch, kv_heads, heads / kv_heads, count, d])?;
    let k = ops::swap_axes(&ops::expand_dims(&wide(k)?, 2)?, -1, -2)?;
    let mut scores = ops::matmul(&q, &k)?;
    let allowed = match mask {
        Mask::Full => None,
        Mask::Causal => Some(causal_mask(count, seen - count, None)?),
        Mask::Allowed(allowed) => Some(allowed.clone()),
    };
    if let Some(allowed) = allowed {
        let never = ops::scalar(f64::NEG_INFINITY, Dtype::Float32)?;
        scores = ops::select(&allowed, &scores, &never)?;
    }
    let sums = ops::logsumexp(&scores, Axes::Of(&[-1]), false)?;
    ops::reshape(&sums, &[batch, heads, count])
}

/// The mask that a call's `causal` and `window` mean.
pub(super) fn mask(of: &Lent<'_>, count: i32, seen: i32) -> Result<Mask, EngineError> {
    let window = of.integer_or_zero("window");
    Ok(match (of.integer_or_zero("causal") != 0, window) {
        (false, _) => Mask::Full,
        (true, 0) => Mask::Causal,
        (true, window) => Mask::Allowed(causal_mask(count, seen - count, Some(window))?),
    })
}

/// Gradients of [`flash`] by queries, keys and values, by `mx.vjp`.
pub(super) fn flash_vjp(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let primals = [of.array("queries")?, of.array("keys")?, of.array("values")?];
    let mask = mask(of, primals[0].dim(2), primals[1].dim(2))?;
    let scale = of.number("scale")? as f32;
    let forward = |a: &[Array]| {
        Ok(vec![ops::scaled_dot_product_attention(&a[0], &a[1], &a[2], scale, &mask)?])
    };
    Ok(vjp(forward, &primals, &[of.array("cotangent")?])?.gradients)
}

/// Projections, norms of heads and rotation, as `Attention` of `mlx_lm/models/qwen3.py` and `llama.py` compose them.
pub(super) fn qkv_rope(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let x = of.array("x")?;
    let (heads, kv_heads) = (of.integer("heads")?, of.integer("kv_heads")?);
    let split = |name: &str, heads: i32| {
        let all = projected(of, &x, name)?;
        ops::reshape(&all, &[x.dim(0), x.dim(1), heads, -1])
    };
    let turned = |a: &Array| ops::transpose(a, &[0, 2, 1, 3]);
    let placed = |name: &str, norm: &str, heads: i32| {
        let all = split(name, heads)?;
        let normed = match of.maybe(norm)? {
            Some(weight) => ops::rms_norm(&all, &weight, of.number("eps")? as f32)?,
            None => all,
        };
        let rotation = Rotation {
            dims: of.integer("dims")?,
            traditional: of.integer("traditional")? != 0,
            periods: Periods::Base(of.number("theta")? as f32),
            scale: of.number("rope_scale")? as f32,
        };
        ops::rotate(&turned(&normed)?, &rotation, RopeOffset::At(of.integer("offset")?))
    };
    let values = turned(&split("v", kv_heads)?)?;
    Ok(vec![placed("q", "q_norm", heads)?, placed("k", "k_norm", kv_heads)?, values])
}
