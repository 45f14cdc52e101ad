//! Losses on the host: classes in chunks, each on one core, with a running maximum and sum for every position.

use super::ID;
use super::call::{Head, IGNORED};
use crate::call::Out;
use crate::error::KernelError;
use crate::gemm::{COLUMNS, Fused, Matrix, Tile, pack_rows, panel_len, product};
use crate::how::How;
use crate::lanes::{F32s, LANES, Simd, Task, Width, lanes_at};
use crate::numbers::{self, Bf16, Format};
use crate::parallel;

/// Classes of a chunk: what one core does at a time.
const CHUNK: usize = 512;

/// Computes a call.
pub(super) fn run(head: &Head<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
    let [Out::F32(loss), Out::F32(lse)] = out else {
        let what = "wanted two results of float32".into();
        return Err(KernelError::Malformed { kernel: ID, what });
    };
    if loss.len() != head.rows || lse.len() != head.rows {
        let what = format!("results are not of {} elements", head.rows);
        return Err(KernelError::Malformed { kernel: ID, what });
    }
    let width = Width::choose(ID, how.path)?;
    let hidden = head.hidden();
    let hidden = Matrix::new(&hidden, head.rows, head.cols);
    let mut chunks = head.classes.div_ceil(CHUNK);
    if how.is("chunk_dropped") && chunks > 1 {
        chunks -= 1;
    }
    let parts = parallel::map(chunks, head.work(), |chunk| {
        width.run(Chunk { head, hidden, first: chunk * CHUNK, how })
    });
    for row in 0..head.rows {
        let Whole { lse: sum, picked } = Whole::of(&parts, row, how);
        let ignored = head.targets[row] == IGNORED && !how.is("ignored_counted");
        lse[row] = sum as f32;
        loss[row] = if ignored { 0.0 } else { (sum - picked) as f32 };
    }
    Ok(())
}

/// What a position has met of the classes.
#[derive(Debug, Clone, Copy)]
struct Met {
    /// The largest logit.
    most: f32,
    /// The sum of exponentials of logits less that.
    sum: f32,
    /// The logit of the target, 0 elsewhere.
    picked: f32,
}

/// A position over all classes.
struct Whole {
    lse: f64,
    picked: f64,
}

impl Whole {
    fn of(parts: &[Vec<Met>], row: usize, how: How) -> Self {
        let met = || parts.iter().map(|part| part[row]);
        let most = met().fold(f32::NEG_INFINITY, |most, met| most.max(met.most));
        let share = |met: Met| f64::from(met.sum) * (f64::from(met.most) - f64::from(most)).exp();
        let sum: f64 = met().map(share).sum();
        let most = if how.is("lse_without_max") { 0.0 } else { f64::from(most) };
        Self { lse: most + sum.ln(), picked: met().map(|met| f64::from(met.picked)).sum() }
    }
}

/// A chunk of classes, and all positions.
struct Chunk<'a> {
    head: &'a Head<'a>,
    hidden: Matrix<'a>,
    first: usize,
    how: How,
}

impl Task for Chunk<'_> {
    type Out = Vec<Met>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<Met> {
        let Self { head, hidden, first, how } = self;
        let mut met = vec![Met { most: f32::NEG_INFINITY, sum: 0.0, picked: 0.0 }; head.rows];
        let mut rows = vec![0.0; COLUMNS * head.cols];
        let mut panel = vec![0.0; panel_len(head.cols)];
        let mut tile = vec![0.0; head.rows * COLUMNS];
        let stop = (first + CHUNK).min(head.classes);
        for first in (first..stop).step_by(COLUMNS) {
            let there = (stop - first).min(COLUMNS);
            if !(there < COLUMNS && how.is("stale_tile")) {
                let rows = &mut rows[..there * head.cols];
                head.weight.rows(first, head.cols, how, rows);
                pack_rows(Matrix::new(rows, there, head.cols), 0, &mut panel);
                let mut out = Tile { data: &mut tile, cols: COLUMNS, stride: COLUMNS, add: false };
                product(simd, Fused, hidden, &panel, &mut out);
            }
            self.hide(first, there, &mut tile);
            for ((row, met), logits) in met.iter_mut().enumerate().zip(tile.chunks_exact(COLUMNS)) {
                met.take(simd, logits, how);
                let target = i64::from(head.targets[row]) - first as i64
                    + i64::from(how.is("target_off_by_one"));
                if (0..there as i64).contains(&target) {
                    met.picked = logits[target as usize];
                }
            }
        }
        met
    }
}

impl Chunk<'_> {
    /// Takes what is no class out of a tile.
    #[inline(always)]
    fn hide(&self, first: usize, there: usize, tile: &mut [f32]) {
        let how = self.how;
        if how.is("needless_rounding") {
            tile.iter_mut().for_each(|logit| *logit = Bf16::round(*logit));
        }
        let last = first + there == self.head.classes;
        let there = if how.is("tail_unmasked") { COLUMNS } else { there };
        let there = there - usize::from(last && how.is("last_class_dropped"));
        let begin = usize::from(first == 0 && how.is("first_class_dropped"));
        if there < COLUMNS || begin > 0 {
            for logits in tile.chunks_exact_mut(COLUMNS) {
                logits[there..].fill(f32::NEG_INFINITY);
                logits[..begin].fill(f32::NEG_INFINITY);
            }
        }
    }
}

impl Met {
    /// The logits of a tile's row (Milakov and Gimelshein, 2018).
    #[inline(always)]
    fn take<S: Simd>(&mut self, simd: S, logits: &[f32], how: How) {
        let [a, b] = [0, LANES].map(|at| simd.load(lanes_at(logits, at)));
        let most = a.max(b).largest().max(self.most);
        let most = if how.is("max_not_subtracted") { 0.0 } else { most };
        if most > self.most {
            let scale = (self.most - most).exp();
            self.sum *= if how.is("rescale_forgotten") { 1.0 } else { scale };
            self.most = most;
        }
        // Of -inf alone: no class yet.
        if most > f32::NEG_INFINITY {
            let top = simd.splat(most);
            self.sum += (numbers::exp(simd, a - top) + numbers::exp(simd, b - top)).sum();
        }
    }
}
