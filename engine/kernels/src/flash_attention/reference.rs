//! Attention in float64, score by score.

use super::Attention;

/// What attention computes on the way, row-major.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scores {
    /// `[batch, heads, L, S]`: softmax of the scores; zero where a query does not see a key.
    pub(crate) weights: Vec<f64>,
    /// `[batch, heads, L, d]`.
    pub(crate) out: Vec<f64>,
    /// `[batch, heads, L]`: the logarithm of the sum of exponentials of the scores.
    pub(crate) lse: Vec<f64>,
}

/// Attention of a call.
pub(crate) fn attend(of: &Attention<'_>) -> Scores {
    let [queries, keys, values] = [of.queries, of.keys, of.values].map(|view| view.to_f64());
    let (count, seen, d) = (of.count(), of.seen(), of.width());
    let group = of.heads() / of.kv_heads();
    let rows = of.batch() * of.heads() * count;
    let mut scores =
        Scores { weights: vec![0.0; rows * seen], out: vec![0.0; rows * d], lse: vec![0.0; rows] };
    for row in 0..rows {
        let (head, query) = (row / count, row % count);
        let kv = head / of.heads() * of.kv_heads() + head % of.heads() / group;
        let q = &queries[row * d..][..d];
        let dot = |key: usize| -> f64 {
            let k = &keys[(kv * seen + key) * d..][..d];
            f64::from(of.scale) * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()
        };
        let visible = of.visible(query);
        let dots: Vec<f64> = visible.clone().map(dot).collect();
        let most = dots.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = dots.iter().map(|dot| (dot - most).exp()).sum();
        scores.lse[row] = most + total.ln();
        for (key, dot) in visible.zip(dots) {
            let weight = (dot - most).exp() / total;
            scores.weights[row * seen + key] = weight;
            let v = &values[(kv * seen + key) * d..][..d];
            let out = &mut scores.out[row * d..][..d];
            out.iter_mut().zip(v).for_each(|(out, v)| *out += weight * v);
        }
    }
    scores
}
