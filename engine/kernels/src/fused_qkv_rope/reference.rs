//! Queries, keys and values in float64.

use super::call::{Qkv, Rope};
use crate::gated::project;

/// The three results, `[batch, heads, rows, head_dim]` each.
pub(super) fn qkv(of: &Qkv<'_>) -> Vec<Vec<f64>> {
    let x = of.x.to_f64();
    (0..3).map(|which| heads(of, &x, which)).collect()
}

fn heads(of: &Qkv<'_>, x: &[f64], which: usize) -> Vec<f64> {
    let (d, heads) = (of.head_dim, of.heads()[which]);
    let projected = project(x, &of.projections[which]);
    let mut out = Vec::with_capacity(projected.len());
    for batch in 0..of.batch {
        for head in 0..heads {
            for row in 0..of.rows {
                let at = ((batch * of.rows + row) * heads + head) * d;
                out.extend(placed(of, projected[at..at + d].to_vec(), which, row));
            }
        }
    }
    out
}

/// One head of one row, normed and rotated where queries and keys are.
fn placed(of: &Qkv<'_>, mut head: Vec<f64>, which: usize, row: usize) -> Vec<f64> {
    if which == 2 {
        return head;
    }
    if let Some(norms) = &of.norms {
        let mean = head.iter().map(|x| x * x).sum::<f64>() / head.len() as f64;
        let scale = 1.0 / (mean + f64::from(norms.eps)).sqrt();
        let weight = norms.weights[which].to_f64();
        head.iter_mut().zip(weight).for_each(|(x, weight)| *x *= scale * weight);
    }
    rotate(&of.rope, &mut head, row);
    head
}

/// Rotary positions (Su et al., 2021).
fn rotate(rope: &Rope, head: &mut [f64], row: usize) {
    let position = (f64::from(rope.offset) + row as f64) * f64::from(rope.scale);
    for index in 0..rope.dims / 2 {
        let exponent = -2.0 * index as f64 / rope.dims as f64;
        let (sin, cos) = (position * f64::from(rope.theta).powf(exponent)).sin_cos();
        let (first, second) = rope.pair(index);
        let (a, b) = (head[first], head[second]);
        head[first] = a * cos - b * sin;
        head[second] = a * sin + b * cos;
    }
}
