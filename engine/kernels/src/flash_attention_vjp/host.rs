//! Gradients on the host: one task a head of keys, over the heads and blocks of queries that see it.

use super::Backward;
use crate::call::{Out, View};
use crate::error::KernelError;
use crate::flash_attention::{panels_of_columns, panels_of_rows, widened};
use crate::gemm::{COLUMNS, Fused, Matrix, Tile, panel_len, product};
use crate::how::How;
use crate::lanes::{F32s, LANES, Simd, Task, Width, lanes_at, lanes_at_mut};
use crate::numbers::exp;
use crate::parallel;

/// Queries of a block.
const QUERIES: usize = 2 * COLUMNS;
/// Keys of a tile.
const KEYS: usize = 4 * COLUMNS;

/// Computes a call.
pub(super) fn run(
    kernel: &'static str,
    of: &Backward<'_>,
    how: How,
    out: &mut [Out<'_>],
) -> Result<(), KernelError> {
    let width = Width::choose(kernel, how.path)?;
    let forward = &of.forward;
    let pairs = forward.batch() * forward.kv_heads();
    let done = parallel::map(pairs, 5 * forward.work(), |pair| width.run(Head { of, pair, how }));
    let [dq, dk, dv] = out else {
        let what = format!("{} results, wanted 3", out.len());
        return Err(KernelError::Malformed { kernel, what });
    };
    let mut queries = vec![0.0; forward.queries.len()];
    let per_head = forward.count() * forward.width();
    for (pair, gradients) in done.iter().enumerate() {
        for (head, part) in heads_of(forward, pair, how).zip(gradients.queries.chunks(per_head)) {
            queries[head * per_head..][..per_head].copy_from_slice(part);
        }
    }
    let keys: Vec<f32> = done.iter().flat_map(|of| of.keys.iter().copied()).collect();
    let values: Vec<f32> = done.iter().flat_map(|of| of.values.iter().copied()).collect();
    for (out, result) in [(dq, queries), (dk, keys), (dv, values)] {
        if out.len() != result.len() {
            let what = format!("a result of {} elements, wanted {}", out.len(), result.len());
            return Err(KernelError::Malformed { kernel, what });
        }
        out.store(&result);
    }
    Ok(())
}

type Forward<'a> = crate::flash_attention::Attention<'a>;

/// The heads of queries, counted over the batch, that read a head of keys.
fn heads_of(of: &Forward<'_>, pair: usize, how: How) -> impl Iterator<Item = usize> {
    let (heads, kv_heads) = (of.heads(), of.kv_heads());
    let (batch, kv) = (pair / kv_heads, pair % kv_heads);
    let dealt = how.is("wrong_kv_head");
    let reads =
        move |head: &usize| (if dealt { head % kv_heads } else { head * kv_heads / heads }) == kv;
    (0..heads).filter(reads).map(move |head| batch * heads + head)
}

/// Gradients of one head of keys and of the heads of queries that read it.
struct Gradients {
    /// Head by head, `[L, d]`.
    queries: Vec<f32>,
    /// `[S, d]`.
    keys: Vec<f32>,
    /// `[S, d]`.
    values: Vec<f32>,
}

/// A head of keys.
struct Head<'a> {
    of: &'a Backward<'a>,
    /// Counted over the batch.
    pair: usize,
    how: How,
}

/// What a head of keys has laid out for products.
struct Laid {
    /// Keys as rows: panels of keys over the width.
    keys: Vec<f32>,
    /// Keys as columns: panels of the width over keys.
    key_columns: Vec<f32>,
    /// Values as rows.
    values: Vec<f32>,
}

/// What a block of queries has laid out for products.
struct Rows {
    first: usize,
    count: usize,
    /// `[rows, d]`.
    queries: Vec<f32>,
    /// `[rows, d]`.
    cotangent: Vec<f32>,
    /// Panels of the width over [`QUERIES`].
    query_columns: Vec<f32>,
    /// Panels of the width over [`QUERIES`].
    cotangent_columns: Vec<f32>,
    lse: Vec<f32>,
    /// Sums of cotangent times result.
    delta: Vec<f32>,
}

impl Task for Head<'_> {
    type Out = Gradients;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Gradients {
        let forward = &self.of.forward;
        let (seen, d) = (forward.seen(), forward.width());
        let laid = self.laid();
        let padded = seen.next_multiple_of(KEYS);
        let (mut dk, mut dv) = (vec![0.0; padded * d], vec![0.0; padded * d]);
        let mut dq = Vec::new();
        for (nth, head) in heads_of(forward, self.pair, self.how).enumerate() {
            for first in (0..forward.count()).step_by(QUERIES) {
                let rows = self.rows(head, first);
                let mut block = vec![0.0; rows.count * d];
                let partial = rows.count < QUERIES && first > 0;
                if !(partial && self.how.is("chunk_dropped")) {
                    let gives = nth == 0 || !self.how.is("first_head_only");
                    let keep = if gives { None } else { Some((dk.clone(), dv.clone())) };
                    self.block(simd, &laid, &rows, &mut block, &mut dk, &mut dv);
                    if let Some(before) = keep {
                        (dk, dv) = before;
                    }
                }
                dq.append(&mut block);
            }
        }
        let scale = if self.how.is("scale_forgotten") { 1.0 } else { forward.scale };
        dk.truncate(seen * d);
        dv.truncate(seen * d);
        dq.iter_mut().chain(&mut dk).for_each(|x| *x *= scale);
        Gradients { queries: dq, keys: dk, values: dv }
    }
}

impl Head<'_> {
    #[inline(always)]
    fn laid(&self) -> Laid {
        let forward = &self.of.forward;
        let at = [self.pair / forward.kv_heads(), self.pair % forward.kv_heads()];
        let [keys, values] = [forward.keys, forward.values].map(|view| widened(&view, at));
        let matrix = |data| Matrix::new(data, forward.seen(), forward.width());
        Laid {
            keys: panels_of_rows(matrix(&keys), KEYS),
            key_columns: panels_of_columns(matrix(&keys), KEYS),
            values: panels_of_rows(matrix(&values), KEYS),
        }
    }

    #[inline(always)]
    fn rows(&self, head: usize, first: usize) -> Rows {
        let forward = &self.of.forward;
        let (d, heads) = (forward.width(), forward.heads());
        let rows = QUERIES.min(forward.count() - first);
        let at = [head / heads, head % heads];
        let part = |view: &View<'_>| rows_of(view, at, first, rows);
        let [queries, out, cotangent] =
            [part(&forward.queries), part(&self.of.out), part(&self.of.cotangent)];
        let lse = (first..first + rows).map(|query| {
            let strides = self.of.lse.strides;
            self.of.lse.data.f32(at[0] * strides[0] + at[1] * strides[1] + query * strides[2])
        });
        let delta = out.chunks_exact(d).zip(cotangent.chunks_exact(d));
        let forgotten = self.how.is("delta_forgotten");
        let delta = delta.map(|(out, given)| {
            let products =
                out.iter().zip(given).map(|(out, given)| f64::from(*out) * f64::from(*given));
            if forgotten { 0.0 } else { products.sum::<f64>() as f32 }
        });
        let (lse, delta) = (lse.collect(), delta.collect());
        let columns = |of: &[f32]| panels_of_columns(Matrix::new(of, rows, d), QUERIES);
        let (query_columns, cotangent_columns) = (columns(&queries), columns(&cotangent));
        Rows {
            first,
            count: rows,
            queries,
            cotangent,
            query_columns,
            cotangent_columns,
            lse,
            delta,
        }
    }

    /// Adds what a block of queries gives.
    ///
    /// The logarithm of a row's sum is rounded, by as much as its size, and that error would be in every weight of the
    /// row. Weights are therefore summed first, and divided by their sum.
    #[inline(always)]
    fn block<S: Simd>(
        &self,
        simd: S,
        laid: &Laid,
        rows: &Rows,
        dq: &mut [f32],
        dk: &mut [f32],
        dv: &mut [f32],
    ) {
        let forward = &self.of.forward;
        let d = forward.width();
        let visible: Vec<_> = (0..rows.count).map(|row| self.visible(rows.first + row)).collect();
        let start = visible.iter().map(|of| of.0).min().unwrap_or(0) / KEYS * KEYS;
        let end = visible.iter().map(|of| of.1).max().unwrap_or(0);
        let mut weights = vec![0.0; rows.count * KEYS];
        let mut slopes = vec![0.0; rows.count * KEYS];
        let mut sums = vec![0.0; rows.count];
        for tile in (start..end).step_by(KEYS) {
            scores(simd, &rows.queries, rows.count, d, &laid.keys, tile, &mut weights);
            for (row, &visible) in visible.iter().enumerate() {
                let weights = &mut weights[row * KEYS..][..KEYS];
                self.weigh(simd, weights, rows.lse[row]);
                hide(tile, visible, weights);
                sums[row] += sum(simd, weights);
            }
        }
        let given = self.how.is("max_not_subtracted");
        let parts: Vec<f32> = sums.iter().map(|sum| if given { 1.0 } else { 1.0 / sum }).collect();
        for tile in (start..end).step_by(KEYS) {
            let stale = tile > start && self.how.is("stale_tile");
            let staged = if stale { tile - KEYS } else { tile };
            scores(simd, &rows.queries, rows.count, d, &laid.keys, tile, &mut weights);
            scores(simd, &rows.cotangent, rows.count, d, &laid.values, staged, &mut slopes);
            for (row, &visible) in visible.iter().enumerate() {
                let at = row * KEYS..(row + 1) * KEYS;
                let (weights, slopes) = (&mut weights[at.clone()], &mut slopes[at]);
                self.weigh(simd, weights, rows.lse[row]);
                slope(simd, weights, slopes, parts[row], rows.delta[row]);
                hide(tile, visible, weights);
                hide(tile, visible, slopes);
            }
            let of = Matrix::new(&slopes, rows.count, KEYS);
            let keys = forward.seen().next_multiple_of(KEYS);
            add_product(simd, of, &laid.key_columns, (keys, tile), dq, d);
            let turned = |of: &[f32], straight: bool| transposed(of, rows.count, straight);
            let (by_weight, by_slope) =
                (turned(&weights, false), turned(&slopes, self.how.is("dk_transposed")));
            let matrix = |of| Matrix { data: of, rows: KEYS, cols: QUERIES, stride: QUERIES };
            let whole = (QUERIES, 0);
            let (dk, dv) = (&mut dk[tile * d..], &mut dv[tile * d..]);
            add_product(simd, matrix(&by_weight), &rows.cotangent_columns, whole, dv, d);
            add_product(simd, matrix(&by_slope), &rows.query_columns, whole, dk, d);
        }
    }

    /// The first key that a query sees, and the one behind the last.
    #[inline(always)]
    fn visible(&self, query: usize) -> (usize, usize) {
        let (of, how) = (&self.of.forward, self.how);
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
    }

    /// Turns scores (without their scale) of a row's tile into weights, near those that sum to 1.
    #[inline(always)]
    fn weigh<S: Simd>(&self, simd: S, scores: &mut [f32], lse: f32) {
        let how = self.how;
        let scale = self.of.forward.scale * if how.is("scale_off") { 1.01 } else { 1.0 };
        let lse = if how.is("max_not_subtracted") { 0.0 } else { lse };
        let (scale, lse) = (simd.splat(scale), simd.splat(-lse));
        for at in (0..KEYS).step_by(LANES) {
            let weight = exp(simd, simd.load(lanes_at(scores, at)).mul_add(scale, lse));
            weight.store(lanes_at_mut(scores, at));
        }
    }
}

/// Multiplies the weights of a row's tile by `part`, and turns dP into slopes of the scores.
#[inline(always)]
fn slope<S: Simd>(simd: S, weights: &mut [f32], slopes: &mut [f32], part: f32, delta: f32) {
    let (part, delta) = (simd.splat(part), simd.splat(delta));
    for at in (0..KEYS).step_by(LANES) {
        let weight = simd.load(lanes_at(weights, at)) * part;
        weight.store(lanes_at_mut(weights, at));
        let slope = weight * (simd.load(lanes_at(slopes, at)) - delta);
        slope.store(lanes_at_mut(slopes, at));
    }
}

#[inline(always)]
fn sum<S: Simd>(simd: S, of: &[f32]) -> f32 {
    let add = |sum: S::F, at| sum + simd.load(lanes_at(of, at));
    (0..KEYS).step_by(LANES).fold(simd.splat(0.0), add).sum()
}

/// Some rows of one head of a view, in float32.
#[inline(always)]
fn rows_of(view: &View<'_>, [batch, head]: [usize; 2], first: usize, rows: usize) -> Vec<f32> {
    let d = view.shape[3];
    let [by_batch, by_head, by_row] = [0, 1, 2].map(|axis| view.strides[axis]);
    let mut to = vec![0.0; rows * d];
    for (row, to) in to.chunks_exact_mut(d).enumerate() {
        view.data.widen(batch * by_batch + head * by_head + (first + row) * by_row, to);
    }
    to
}

/// `[rows, KEYS]`: rows times the keys (or values) from `tile` on.
#[inline(always)]
fn scores<S: Simd>(
    simd: S,
    of: &[f32],
    rows: usize,
    d: usize,
    panels: &[f32],
    tile: usize,
    to: &mut [f32],
) {
    let panel = panel_len(d);
    for column in (0..KEYS).step_by(COLUMNS) {
        let at = (tile + column) / COLUMNS * panel;
        let mut to = Tile { data: &mut to[column..], cols: COLUMNS, stride: KEYS, add: false };
        product(simd, Fused, Matrix::new(of, rows, d), &panels[at..][..panel], &mut to);
    }
}

/// Adds a product with columns laid out over `whole` rows, from row `first` on.
#[inline(always)]
fn add_product<S: Simd>(
    simd: S,
    of: Matrix<'_>,
    panels: &[f32],
    (whole, first): (usize, usize),
    to: &mut [f32],
    d: usize,
) {
    for column in (0..d).step_by(COLUMNS) {
        let at = column / COLUMNS * panel_len(whole) + panel_len(first);
        let cols = COLUMNS.min(d - column);
        let mut to = Tile { data: &mut to[column..], cols, stride: d, add: true };
        product(simd, Fused, of, &panels[at..][..panel_len(of.cols)], &mut to);
    }
}

/// `[rows, KEYS]` as `[KEYS, QUERIES]` with zeros behind the rows; under a bug as it lies.
#[inline(always)]
fn transposed(of: &[f32], rows: usize, straight: bool) -> Vec<f32> {
    let mut to = vec![0.0; KEYS * QUERIES];
    for row in 0..rows {
        for key in 0..KEYS {
            let at = if straight { row * KEYS + key } else { key * QUERIES + row };
            to[at] = of[row * KEYS + key];
        }
    }
    to
}

/// Takes out the keys of a tile that a row does not see.
#[inline(always)]
fn hide(tile: usize, (start, end): (usize, usize), of: &mut [f32]) {
    of[..start.saturating_sub(tile).min(KEYS)].fill(0.0);
    of[end.saturating_sub(tile).min(KEYS)..].fill(0.0);
}
