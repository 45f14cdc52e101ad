//! Gradients on the host: classes in chunks, one after the other; within a chunk, positions on all cores, then rows of
//! the matrix's gradient.

use super::ID;
use super::call::Backward;
use crate::call::Out;
use crate::error::KernelError;
use crate::flash_cce::call::IGNORED;
use crate::gemm::{COLUMNS, Fused, Matrix, Tile, pack_columns, pack_rows, panel_len, product};
use crate::how::How;
use crate::lanes::LANES;
use crate::lanes::{F32s, Simd, Task, Width, lanes_at, lanes_at_mut};
use crate::numbers::{self, Bf16, Format};
use crate::parallel;

/// Classes of a chunk.
const CHUNK: usize = 256;
/// Positions, or classes, that one core does at a time.
const BLOCK: usize = 64;

/// Computes a call, whose results fit.
pub(super) fn run(of: &Backward<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
    let head = &of.head;
    let width = Width::choose(ID, how.path)?;
    let hidden = head.hidden();
    let hidden = Matrix::new(&hidden, head.rows, head.cols);
    let positions = positions(of, how);
    let by_columns = if of.want_dweight { panels_of_columns(hidden) } else { Vec::new() };
    let mut dhidden = vec![0.0; head.rows * head.cols];
    let mut slopes = vec![0.0; head.rows * CHUNK];
    let mut chunk = Chunk::default();
    let chunks = head.classes.div_ceil(CHUNK);
    for index in 0..chunks {
        let last = index + 1 == chunks;
        let first = index * CHUNK;
        let there = (head.classes - first).min(CHUNK);
        if !(last && index > 0 && how.is("stale_tile")) {
            chunk.load(of, first, there, how);
        }
        slopes.fill(0.0);
        if !(last && index > 0 && how.is("chunk_dropped")) {
            let there = there - usize::from(last && how.is("last_class_dropped"));
            let shared = Shared { chunk: &chunk, hidden, positions: &positions, first, there, how };
            let blocks =
                dhidden.chunks_mut(BLOCK * head.cols).zip(slopes.chunks_mut(BLOCK * CHUNK));
            parallel::each(
                blocks,
                2 * head.rows * head.cols * there,
                |block, (dhidden, slopes)| {
                    width.run(Block { shared: &shared, row: block * BLOCK, dhidden, slopes });
                },
            );
        }
        if let (true, [_, out]) = (of.want_dweight, &mut *out) {
            let rows = of_classes(width, &slopes, there, hidden, &by_columns);
            out.store_at(first * head.cols, &rows);
        }
    }
    out[0].store(&dhidden);
    Ok(())
}

/// What a position's slopes are made of.
#[derive(Debug, Clone, Copy)]
struct Position {
    target: i64,
    lse: f32,
    cotangent: f32,
}

fn positions(of: &Backward<'_>, how: How) -> Vec<Position> {
    let (lse, cotangent) = (of.lse.to_f32(), of.cotangent.to_f32());
    let share = if how.is("mean_taken") { 1.0 / lse.len() as f32 } else { 1.0 };
    let position = |(row, &target): (usize, &i32)| {
        let cotangent = if how.is("cotangent_forgotten") { 1.0 } else { cotangent[row] };
        let counted = target != IGNORED || how.is("ignored_counted");
        let cotangent = if counted { share * cotangent } else { 0.0 };
        let target = i64::from(target) + i64::from(how.is("target_off_by_one"));
        let target = if how.is("target_forgotten") { -1 } else { target };
        Position { target, lse: lse[row], cotangent }
    };
    of.head.targets.iter().enumerate().map(position).collect()
}

/// Rows of the matrix, packed for both products.
#[derive(Debug, Default)]
struct Chunk {
    /// For logits: panels `[cols][COLUMNS]` of classes.
    by_rows: Vec<Vec<f32>>,
    /// For gradients: panels `[classes][COLUMNS]` of columns.
    by_columns: Vec<Vec<f32>>,
}

impl Chunk {
    fn load(&mut self, of: &Backward<'_>, first: usize, there: usize, how: How) {
        let cols = of.head.cols;
        let mut rows = vec![0.0; there * cols];
        parallel::chunks(&mut rows, COLUMNS * cols, there * cols, |index, rows| {
            of.head.weight.rows(first + index * COLUMNS, cols, how, rows);
        });
        let matrix = Matrix::new(&rows, there, cols);
        self.by_rows = parallel::map(there.div_ceil(COLUMNS), 4 * there * cols, |index| {
            let mut panel = vec![0.0; panel_len(cols)];
            pack_rows(matrix, index * COLUMNS, &mut panel);
            panel
        });
        self.by_columns = panels_of_columns(matrix);
    }
}

fn panels_of_columns(matrix: Matrix<'_>) -> Vec<Vec<f32>> {
    let work = 4 * matrix.rows * matrix.cols;
    parallel::map(matrix.cols.div_ceil(COLUMNS), work, |index| {
        let mut panel = vec![0.0; panel_len(matrix.rows)];
        pack_columns(matrix, index * COLUMNS, &mut panel);
        panel
    })
}

/// What the blocks of a chunk share.
struct Shared<'a> {
    chunk: &'a Chunk,
    hidden: Matrix<'a>,
    positions: &'a [Position],
    first: usize,
    there: usize,
    how: How,
}

/// Some positions in a chunk.
struct Block<'a> {
    shared: &'a Shared<'a>,
    row: usize,
    /// `[positions, cols]`, added to.
    dhidden: &'a mut [f32],
    /// `[positions, CHUNK]`, zeros.
    slopes: &'a mut [f32],
}

impl Task for Block<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { shared, row, dhidden, slopes } = self;
        let Shared { chunk, hidden, positions, first, there, how } = *shared;
        let (rows, cols) = (slopes.len() / CHUNK, hidden.cols);
        let part = Matrix::new(&hidden.data[row * cols..][..rows * cols], rows, cols);
        for (index, panel) in chunk.by_rows.iter().enumerate() {
            let data = &mut slopes[index * COLUMNS..];
            let mut out = Tile { data, cols: COLUMNS, stride: CHUNK, add: false };
            product(simd, Fused, part, panel, &mut out);
        }
        for (of, slopes) in positions[row..].iter().zip(slopes.chunks_exact_mut(CHUNK)) {
            of.slopes(simd, first, there, how, slopes);
        }
        let classes = chunk.by_columns.first().map_or(0, |panel| panel.len() / COLUMNS);
        let left = Matrix { data: slopes, rows, cols: classes, stride: CHUNK };
        for (index, panel) in chunk.by_columns.iter().enumerate() {
            let at = index * COLUMNS;
            let data = &mut dhidden[at..];
            let mut out = Tile { data, cols: (cols - at).min(COLUMNS), stride: cols, add: true };
            product(simd, Fused, left, panel, &mut out);
        }
    }
}

impl Position {
    /// Logits of the classes from `first` on to slopes of the loss by them; zeros behind the last.
    #[inline(always)]
    fn slopes<S: Simd>(&self, simd: S, first: usize, there: usize, how: How, of: &mut [f32]) {
        if how.is("needless_rounding") {
            of.iter_mut().for_each(|logit| *logit = Bf16::round(*logit));
        }
        let lse = simd.splat(self.lse);
        let unshifted = how.is("max_not_subtracted");
        for at in (0..there).step_by(LANES) {
            let logits = simd.load(lanes_at(of, at));
            let share = if unshifted {
                numbers::exp(simd, logits) / numbers::exp(simd, lse)
            } else {
                numbers::exp(simd, logits - lse)
            };
            share.store(lanes_at_mut(of, at));
        }
        let target = self.target - first as i64;
        if (0..there as i64).contains(&target) {
            of[target as usize] -= 1.0;
        }
        of[..there].iter_mut().for_each(|slope| *slope *= self.cotangent);
        of[there..].fill(0.0);
    }
}

/// The matrix's gradient in a chunk, `[there, cols]`: transposed slopes `[positions, CHUNK]` times hidden states.
fn of_classes(
    width: Width,
    slopes: &[f32],
    there: usize,
    hidden: Matrix<'_>,
    by_columns: &[Vec<f32>],
) -> Vec<f32> {
    let mut out = vec![0.0; there * hidden.cols];
    let work = there * hidden.rows * hidden.cols;
    parallel::chunks(&mut out, BLOCK * hidden.cols, work, |block, out| {
        let rows = out.len() / hidden.cols;
        let turned = (0..rows).flat_map(|row| {
            slopes.iter().skip(block * BLOCK + row).step_by(CHUNK).copied().take(hidden.rows)
        });
        let turned: Vec<f32> = turned.collect();
        let left = Matrix::new(&turned, rows, hidden.rows);
        for (index, panel) in by_columns.iter().enumerate() {
            let at = index * COLUMNS;
            let cols = (hidden.cols - at).min(COLUMNS);
            let out = Tile { data: &mut out[at..], cols, stride: hidden.cols, add: false };
            crate::gemm::multiply(width, left, panel, out);
        }
    });
    out
}
