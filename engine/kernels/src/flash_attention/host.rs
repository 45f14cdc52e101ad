//! Attention on the host: one task a block of queries, over tiles of keys.

use super::Attention;
use crate::call::{Out, View};
use crate::error::KernelError;
use crate::gemm::{self, COLUMNS, Fused, Matrix, Tile, panel_len, product};
use crate::how::How;
use crate::lanes::{F32s, LANES, Mask as _, Simd, Task, Width, lanes_at, lanes_at_mut};
use crate::numbers::{Bf16, Format, exp};
use crate::parallel;

/// Queries of a task.
const QUERIES: usize = 64;
/// Keys of a tile: a few panels.
const KEYS: usize = 4 * COLUMNS;

/// Computes a call.
pub(super) fn run(
    kernel: &'static str,
    of: &Attention<'_>,
    how: How,
    out: &mut [Out<'_>],
) -> Result<(), KernelError> {
    let width = Width::choose(kernel, how.path)?;
    let work = of.work();
    let pairs = of.batch() * of.kv_heads();
    let packed = parallel::map(pairs, work, |pair| Packed::of(of, pair));
    let blocks = of.count().div_ceil(QUERIES);
    let tasks = of.batch() * of.heads() * blocks;
    let done = parallel::map(tasks, work, |task| {
        let (head, block) = (task / blocks, task % blocks);
        let kv = head / of.heads() * of.kv_heads() + kv_head(of, head % of.heads(), how);
        width.run(Block { of, packed: &packed[kv], head, first: block * QUERIES, how })
    });
    let (mixed, lse): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let mut results = vec![mixed.concat()];
    if of.want_lse {
        results.push(lse.concat());
    }
    let fits = out.len() == results.len()
        && out.iter().zip(&results).all(|(out, result)| out.len() == result.len());
    if !fits {
        return Err(KernelError::Malformed { kernel, what: "results of other lengths".to_owned() });
    }
    out.iter_mut().zip(&results).for_each(|(out, result)| out.store(result));
    Ok(())
}

fn kv_head(of: &Attention<'_>, head: usize, how: How) -> usize {
    if how.is("wrong_kv_head") { head % of.kv_heads() } else { head * of.kv_heads() / of.heads() }
}

/// Keys and values of one head as panels.
struct Packed {
    /// Panels of [`COLUMNS`] keys, over the width of a head.
    keys: Vec<f32>,
    /// Panels of [`COLUMNS`] columns, over all keys and zeros up to a whole tile.
    values: Vec<f32>,
}

impl Packed {
    fn of(of: &Attention<'_>, pair: usize) -> Self {
        let at = [pair / of.kv_heads(), pair % of.kv_heads()];
        let [keys, values] = [of.keys, of.values].map(|view| widened(&view, at));
        let matrix = |data| Matrix::new(data, of.seen(), of.width());
        Self {
            keys: panels_of_rows(matrix(&keys), KEYS),
            values: panels_of_columns(matrix(&values), KEYS),
        }
    }
}

/// One head of a view `[batch, heads, n, d]` in float32, row-major.
pub(crate) fn widened(of: &View<'_>, [batch, head]: [usize; 2]) -> Vec<f32> {
    let (&[_, _, rows, d], &[by_batch, by_head, by_row, _]) = (of.shape, of.strides) else {
        unreachable!("four axes, as the call was checked for")
    };
    let mut to = vec![0.0; rows * d];
    for (row, to) in to.chunks_exact_mut(d).enumerate() {
        of.data.widen(batch * by_batch + head * by_head + row * by_row, to);
    }
    to
}

/// All rows of a matrix as panels of columns, with panels of zeros up to a multiple of `unit` rows.
pub(crate) fn panels_of_rows(of: Matrix<'_>, unit: usize) -> Vec<f32> {
    let rows = of.rows.next_multiple_of(unit);
    let mut panels = vec![0.0; rows * of.cols];
    for (i, panel) in panels.chunks_exact_mut(panel_len(of.cols)).enumerate() {
        gemm::pack_rows(of, i * COLUMNS, panel);
    }
    panels
}

/// All columns of a matrix as panels, with rows of zeros up to a multiple of `unit`.
pub(crate) fn panels_of_columns(of: Matrix<'_>, unit: usize) -> Vec<f32> {
    let rows = of.rows.next_multiple_of(unit);
    let mut panels = vec![0.0; rows * of.cols.next_multiple_of(COLUMNS)];
    for (i, panel) in panels.chunks_exact_mut(panel_len(rows)).enumerate() {
        gemm::pack_columns(of, i * COLUMNS, panel);
    }
    panels
}

/// The queries of one task: at most [`QUERIES`] of one head.
struct Block<'a> {
    of: &'a Attention<'a>,
    packed: &'a Packed,
    /// Counted over the batch.
    head: usize,
    first: usize,
    how: How,
}

/// What a row has seen so far.
#[derive(Clone, Copy)]
struct Seen {
    most: f32,
    sum: f32,
}

impl Task for Block<'_> {
    /// The mixtures `[queries, d]`, and the logarithms of sums.
    type Out = (Vec<f32>, Vec<f32>);

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> (Vec<f32>, Vec<f32>) {
        let (of, how, d) = (self.of, self.how, self.of.width());
        let rows = QUERIES.min(of.count() - self.first);
        let queries = self.scaled_queries(rows);
        let visible = self.visible(rows);
        let mut scores = vec![0.0; rows * KEYS];
        let (mut mixed, mut part) = (vec![0.0; rows * d], vec![0.0; rows * d]);
        let mut earlier = vec![1.0; rows];
        let mut seen = vec![Seen { most: f32::NEG_INFINITY, sum: 0.0 }; rows];
        let end = visible.iter().map(|(_, end)| *end).max().unwrap_or(0);
        let start = visible.iter().map(|(start, _)| *start).min().unwrap_or(0) / KEYS * KEYS;
        for tile in (start..end).step_by(KEYS) {
            let partial = end - tile < KEYS;
            if partial && tile > start && how.is("chunk_dropped") {
                break;
            }
            self.score(simd, Matrix::new(&queries, rows, d), tile, &mut scores);
            for row in 0..rows {
                let scores = &mut scores[row * KEYS..][..KEYS];
                self.hide(tile, visible[row], scores);
                let by = weigh(simd, scores, &mut seen[row], how);
                earlier[row] = if how.is("rescale_forgotten") { 1.0 } else { by };
            }
            let stale = tile > start && end - tile <= KEYS && how.is("stale_tile");
            let values = if stale { tile - KEYS } else { tile };
            self.mix(simd, Matrix::new(&scores, rows, KEYS), values, &mut part);
            let of_rows = mixed.chunks_exact_mut(d).zip(part.chunks_exact(d)).zip(&earlier);
            for ((mixed, part), by) in of_rows {
                mixed.iter_mut().zip(part).for_each(|(mixed, part)| *mixed = *mixed * by + part);
            }
            if how.is("accumulator_bf16") {
                for x in &mut mixed {
                    *x = Bf16::round(*x);
                }
            }
        }
        for (row, seen) in mixed.chunks_exact_mut(d).zip(&seen) {
            for x in row {
                *x /= seen.sum;
            }
        }
        let base = |of: &Seen| if how.is("lse_without_max") { 0.0 } else { of.most };
        (mixed, seen.iter().map(|of| base(of) + of.sum.ln()).collect())
    }
}

impl Block<'_> {
    /// The rows times the scale, in float32.
    #[inline(always)]
    fn scaled_queries(&self, rows: usize) -> Vec<f32> {
        let of = self.of;
        let (d, queries) = (of.width(), of.queries);
        let [by_batch, by_head, by_row] = [0, 1, 2].map(|axis| queries.strides[axis]);
        let at = self.head / of.heads() * by_batch + self.head % of.heads() * by_head;
        let scale = if self.how.is("scale_off") { of.scale * 1.01 } else { of.scale };
        let mut scaled = vec![0.0; rows * d];
        for (row, to) in scaled.chunks_exact_mut(d).enumerate() {
            queries.data.widen(at + (self.first + row) * by_row, to);
            for x in to {
                *x *= scale;
            }
        }
        scaled
    }

    /// The first key that each row sees, and the one behind the last.
    #[inline(always)]
    fn visible(&self, rows: usize) -> Vec<(usize, usize)> {
        let (of, how) = (self.of, self.how);
        let range = |row: usize| {
            let query = self.first + row;
            let mut range = of.visible(query);
            if of.causal && how.is("causal_top_left") {
                range = range.start.min(query)..query + 1;
            }
            let several = range.len() > 1;
            let wide = of.window > 0 && how.is("window_off_by_one");
            let start = range.start.saturating_sub(usize::from(wide));
            let skips = several && range.start == 0 && how.is("first_key_dropped");
            let cut = several && range.end == of.seen() && how.is("last_key_dropped");
            (start + usize::from(skips), range.end - usize::from(cut))
        };
        (0..rows).map(range).collect()
    }

    /// Scores of the keys from `tile` on.
    #[inline(always)]
    fn score<S: Simd>(&self, simd: S, queries: Matrix<'_>, tile: usize, scores: &mut [f32]) {
        let panel = panel_len(queries.cols);
        for column in (0..KEYS).step_by(COLUMNS) {
            let at = (tile + column) / COLUMNS * panel;
            let mut to =
                Tile { data: &mut scores[column..], cols: COLUMNS, stride: KEYS, add: false };
            product(simd, Fused, queries, &self.packed.keys[at..][..panel], &mut to);
        }
    }

    /// Takes out the keys of a tile that a row does not see.
    #[inline(always)]
    fn hide(&self, tile: usize, (start, end): (usize, usize), scores: &mut [f32]) {
        let before = start.saturating_sub(tile).min(KEYS);
        scores[..before].fill(f32::NEG_INFINITY);
        let mut behind = end.saturating_sub(tile).min(KEYS);
        if self.how.is("tail_unmasked") && end == self.of.seen() {
            behind = KEYS;
        }
        scores[behind..].fill(f32::NEG_INFINITY);
    }

    /// The values from `tile` on, each times its weight. Each tile is summed by itself, so that rounding grows with the
    /// tiles and the keys of one, not with all keys.
    #[inline(always)]
    fn mix<S: Simd>(&self, simd: S, weights: Matrix<'_>, tile: usize, mixed: &mut [f32]) {
        let d = self.of.width();
        let panel = panel_len(self.of.seen().next_multiple_of(KEYS));
        for column in (0..d).step_by(COLUMNS) {
            let at = column / COLUMNS * panel + panel_len(tile);
            let values = &self.packed.values[at..][..panel_len(KEYS)];
            let cols = COLUMNS.min(d - column);
            let mut to = Tile { data: &mut mixed[column..], cols, stride: d, add: false };
            product(simd, Fused, weights, values, &mut to);
        }
    }
}

/// Turns the scores of a row's tile into weights, `exp(score - most)`, and says what earlier mixtures are to be
/// multiplied by.
#[inline(always)]
fn weigh<S: Simd>(simd: S, scores: &mut [f32], seen: &mut Seen, how: How) -> f32 {
    let most = (0..KEYS).step_by(LANES).fold(simd.splat(f32::NEG_INFINITY), |most, at| {
        let scores = simd.load(lanes_at(scores, at));
        // The second operand wins where one is NaN, so a NaN stays.
        let larger = most.max(scores);
        most.le(most).select(larger, most)
    });
    let mut lanes = [0.0; LANES];
    most.store(&mut lanes);
    let largest =
        lanes.into_iter().fold(seen.most, |most, x| if x > most || x.is_nan() { x } else { most });
    let none = largest == f32::NEG_INFINITY;
    let base = if none || how.is("max_not_subtracted") { 0.0 } else { largest };
    let mut sum = simd.splat(0.0);
    for at in (0..KEYS).step_by(LANES) {
        let lanes = lanes_at_mut(scores, at);
        let weight = exp(simd, simd.load(lanes) - simd.splat(base));
        weight.store(lanes);
        sum = sum + weight;
    }
    let earlier = if seen.most == f32::NEG_INFINITY || how.is("max_not_subtracted") {
        f32::from(u8::from(how.is("max_not_subtracted")))
    } else {
        (seen.most - largest).exp()
    };
    seen.sum = seen.sum * earlier + sum.sum();
    seen.most = if how.is("max_not_subtracted") && !none { 0.0 } else { largest };
    earlier
}
