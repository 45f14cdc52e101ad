//! Keys in pieces of a fixed number, each attended by all query heads of its kv head at once; the pieces of a
//! head are joined in order, by their maxima (Milakov and Gimelshein, 2018; Dao et al., 2023).

use std::ops::Range;

use super::ID;
use super::block::Piece;
use super::problem::Problem;
use crate::call::Out;
use crate::error::KernelError;
use crate::how::How;
use crate::lanes::Width;
use crate::parallel;

/// Keys of a piece.
const KEYS: usize = 1024;

/// Maximum and sum, before the totals of each head of a piece.
pub(super) const AHEAD: usize = 2;

/// Writes `[batch, heads, 1, dim]`.
pub(super) fn run(of: &Problem<'_>, how: How, out: &mut Out<'_>) -> Result<(), KernelError> {
    let width = Width::choose(ID, how.path)?;
    let ranges = ranges(of, how);
    let pieces = ranges.len();
    let task = |index: usize| {
        let head = index / pieces;
        let (batch, kv_head) = (head / of.kv_heads, head % of.kv_heads);
        width.run(Piece { of, how, batch, kv_head, keys: ranges[index % pieces].clone() })
    };
    let work = 2 * of.batch * of.heads * of.dim * of.keys;
    let partial = parallel::map(of.batch * of.kv_heads * pieces, work, task);
    let mut joined = vec![0.0; of.batch * of.heads * of.dim];
    let (each, size) = (of.heads / of.kv_heads, of.dim + AHEAD);
    for (row, to) in joined.chunks_exact_mut(of.dim).enumerate() {
        let (batch, head) = (row / of.heads, row % of.heads);
        let (kv_head, at) = place(head, each, of.kv_heads, how);
        let first = (batch * of.kv_heads + kv_head) * pieces;
        let parts: Vec<&[f32]> =
            partial[first..first + pieces].iter().map(|of| &of[at * size..][..size]).collect();
        join(&parts, how, to);
    }
    out.store(&joined);
    Ok(())
}

/// The kv head of a head, and its place among those that share it.
fn place(head: usize, each: usize, kv_heads: usize, how: How) -> (usize, usize) {
    if how.is("wrong_kv_head") {
        return (head % kv_heads, head / kv_heads);
    }
    (head / each, head % each)
}

/// The head that has a place among those of a kv head.
pub(super) fn head(kv_head: usize, at: usize, of: &Problem<'_>, how: How) -> usize {
    if how.is("wrong_kv_head") {
        return kv_head + at * of.kv_heads;
    }
    kv_head * (of.heads / of.kv_heads) + at
}

/// What is visible, in pieces.
fn ranges(of: &Problem<'_>, how: How) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    for range in of.visible(how) {
        let starts = range.clone().step_by(KEYS);
        pieces.extend(starts.map(|start| start..(start + KEYS).min(range.end)));
    }
    if pieces.len() > 1 && how.is("chunk_dropped") {
        pieces.pop();
    }
    pieces
}

/// Pieces of one head: the maximum and the sum of each, then its totals.
fn join(parts: &[&[f32]], how: How, to: &mut [f32]) {
    let best = parts.iter().map(|part| part[0]).fold(f32::NEG_INFINITY, f32::max);
    let mut whole = 0.0;
    to.fill(0.0);
    for part in parts {
        let (head, totals) = part.split_at(AHEAD);
        let weight = if how.is("join_unweighted") { 1.0 } else { (head[0] - best).exp() };
        whole += weight * head[1];
        to.iter_mut().zip(totals).for_each(|(to, total)| *to += weight * total);
    }
    for to in to {
        *to /= whole;
    }
}
