//! Gradients of attention in float64, from the operands of the forward alone.

use super::Backward;
use crate::flash_attention::{Scores, attend};

/// By queries, keys and values, row-major. The forward is computed again, so that `out` and `lse` of the call only
/// matter to kernels.
pub(super) fn gradients(of: &Backward<'_>) -> Vec<Vec<f64>> {
    let forward = &of.forward;
    let [queries, keys, values, cotangent] =
        [forward.queries, forward.keys, forward.values, of.cotangent].map(|view| view.to_f64());
    let Scores { weights, out, .. } = attend(forward);
    let (count, seen, d) = (forward.count(), forward.seen(), forward.width());
    let group = forward.heads() / forward.kv_heads();
    let scale = f64::from(forward.scale);
    let mut dq = vec![0.0; queries.len()];
    let mut dk = vec![0.0; keys.len()];
    let mut dv = vec![0.0; values.len()];
    for row in 0..forward.batch() * forward.heads() * count {
        let head = row / count;
        let kv = head / forward.heads() * forward.kv_heads() + head % forward.heads() / group;
        let at = row * d..(row + 1) * d;
        let (q, given) = (&queries[at.clone()], &cotangent[at.clone()]);
        let delta = dot(given, &out[at.clone()]);
        for key in 0..seen {
            let weight = weights[row * seen + key];
            let there = (kv * seen + key) * d..(kv * seen + key + 1) * d;
            let slope = scale * weight * (dot(given, &values[there.clone()]) - delta);
            add(&mut dv[there.clone()], weight, given);
            add(&mut dq[at.clone()], slope, &keys[there.clone()]);
            add(&mut dk[there], slope, q);
        }
    }
    vec![dq, dk, dv]
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], by: f64, of: &[f64]) {
    to.iter_mut().zip(of).for_each(|(to, of)| *to += by * of);
}
