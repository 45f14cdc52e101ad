//! `softmax(scale · q · kᵀ) · v` of the dequantized cache in float64.

use super::problem::{Cache, Problem};
use crate::affine;
use crate::how::How;

/// Results `[batch, heads, 1, dim]`, row-major.
pub(super) fn attend(of: &Problem<'_>) -> Vec<f64> {
    let each = of.heads / of.kv_heads;
    let heads = (0..of.batch).flat_map(|batch| (0..of.heads).map(move |head| (batch, head)));
    heads.flat_map(|(batch, head)| one(of, batch, head, head / each)).collect()
}

fn one(of: &Problem<'_>, batch: usize, head: usize, kv_head: usize) -> Vec<f64> {
    let start = of.queries.start(batch, head, 0);
    let query: Vec<f64> = (0..of.dim).map(|i| f64::from(of.queries.data.f32(start + i))).collect();
    let visible: Vec<usize> = of.visible(How::new()).into_iter().flatten().collect();
    let score = |&key: &usize| {
        let key = row(of, &of.keys_packed, batch, kv_head, key);
        let score = f64::from(of.scale) * query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
        let cap = f64::from(of.softcap);
        if cap > 0.0 { cap * (score / cap).tanh() } else { score }
    };
    let scores: Vec<f64> = visible.iter().map(score).collect();
    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = vec![0.0; of.dim];
    let mut whole = 0.0;
    for (score, &key) in scores.iter().zip(&visible) {
        let weight = (score - best).exp();
        whole += weight;
        let values = row(of, &of.values_packed, batch, kv_head, key);
        total.iter_mut().zip(values).for_each(|(total, value)| *total += weight * value);
    }
    total.iter().map(|total| total / whole).collect()
}

/// A row of the cache: `scale · code + bias`.
fn row(of: &Problem<'_>, cache: &Cache<'_>, batch: usize, head: usize, key: usize) -> Vec<f64> {
    let words = &cache.words.data[cache.words.start(batch, head, key)..];
    let scales = cache.scales.start(batch, head, key);
    let biases = cache.biases.start(batch, head, key);
    let value = |index: usize| {
        let scale = cache.scales.data.f32(scales + index / of.group);
        let bias = cache.biases.data.f32(biases + index / of.group);
        f64::from(scale) * f64::from(affine::code(words, of.bits, index)) + f64::from(bias)
    };
    (0..of.dim).map(value).collect()
}
