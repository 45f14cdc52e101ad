//! Products of float32 matrices: a microkernel over panels of [`COLUMNS`] columns.
//!
//! The right matrix is laid out in panels `[k][COLUMNS]` (zeros beyond its last column), by one of the
//! `pack_*` functions or by whoever makes its numbers (a dequantizer). The left one is read as it lies.
//! Each sum runs over k in order, in one accumulator.

use crate::lanes::{F32s, LANES, Simd, Task, Width, lanes_at};

/// Columns of a panel.
pub(crate) const COLUMNS: usize = 2 * LANES;

/// A matrix, row-major with `stride` elements from row to row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a> {
    /// The memory, from the first element on.
    pub data: &'a [f32],
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl<'a> Matrix<'a> {
    /// A matrix without gaps.
    pub const fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self { data, rows, cols, stride: cols }
    }

    /// A row.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..self.cols]
    }
}

/// Where a product goes: rows of at most [`COLUMNS`] columns, `stride` elements apart.
#[derive(Debug)]
pub(crate) struct Tile<'a> {
    /// The memory, from the first element on.
    pub data: &'a mut [f32],
    /// Columns that are written.
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Sums start at what is there instead of at zero.
    pub add: bool,
}

/// Elements of a panel over `k`.
pub(crate) const fn panel_len(k: usize) -> usize {
    k * COLUMNS
}

/// Packs rows `first..` of `of` `[n, k]` as columns: for a product with its transpose.
pub(crate) fn pack_rows(of: Matrix<'_>, first: usize, panel: &mut [f32]) {
    let there = of.rows.saturating_sub(first).min(COLUMNS);
    let panel = &mut panel[..panel_len(of.cols)];
    if there < COLUMNS {
        panel.fill(0.0);
    }
    for column in 0..there {
        let row = of.row(first + column);
        for (to, &from) in panel.iter_mut().skip(column).step_by(COLUMNS).zip(row) {
            *to = from;
        }
    }
}

/// Packs columns `first..` of `of` `[k, n]`.
pub(crate) fn pack_columns(of: Matrix<'_>, first: usize, panel: &mut [f32]) {
    let there = of.cols.saturating_sub(first).min(COLUMNS);
    for (k, to) in panel.chunks_exact_mut(COLUMNS).take(of.rows).enumerate() {
        to[..there].copy_from_slice(&of.row(k)[first..first + there]);
        to[there..].fill(0.0);
    }
}

/// How a sum takes in a product.
pub(crate) trait Step: Copy + Send + Sync {
    /// Rows at a time that keep the units busy, where `registers` vectors fit in registers.
    fn rows(registers: usize) -> usize;

    /// `sum` and `x · b`.
    fn step<S: Simd>(self, simd: S, sum: S::F, x: S::F, b: S::F) -> S::F;
}

/// `sum + x · b`, rounded once where the target has a fused multiply-add.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fused;

impl Step for Fused {
    #[inline(always)]
    fn rows(registers: usize) -> usize {
        match registers {
            32.. => 8,
            8.. => 2,
            _ => 1,
        }
    }

    #[inline(always)]
    fn step<S: Simd>(self, _: S, sum: S::F, x: S::F, b: S::F) -> S::F {
        x.mul_add(b, sum)
    }
}

/// `out[i][j] = Σ_k a[i][k] · panel[k][j]` as a task of its own.
#[derive(Debug)]
pub(crate) struct Product<'a, P> {
    /// How sums take in products.
    pub step: P,
    /// The left matrix.
    pub a: Matrix<'a>,
    /// The panel of the right one.
    pub panel: &'a [f32],
    /// The result.
    pub out: Tile<'a>,
}

impl<P: Step> Task for Product<'_, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        product(simd, self.step, self.a, self.panel, &mut self.out);
    }
}

/// `out[i][j] = Σ_k a[i][k] · panel[k][j]` with fused multiply-adds where there are any.
pub(crate) fn multiply(width: Width, a: Matrix<'_>, panel: &[f32], out: Tile<'_>) {
    width.run(Product { step: Fused, a, panel, out });
}

/// The same within a task.
#[inline(always)]
pub(crate) fn product<S: Simd, P: Step>(
    simd: S,
    step: P,
    a: Matrix<'_>,
    panel: &[f32],
    out: &mut Tile<'_>,
) {
    let mut row = 0;
    let most = P::rows(S::REGISTERS);
    while most >= 8 && row + 8 <= a.rows {
        block::<S, P, 8>(simd, step, a, row, panel, out);
        row += 8;
    }
    while most >= 4 && row + 4 <= a.rows {
        block::<S, P, 4>(simd, step, a, row, panel, out);
        row += 4;
    }
    while most >= 2 && row + 2 <= a.rows {
        block::<S, P, 2>(simd, step, a, row, panel, out);
        row += 2;
    }
    while row < a.rows {
        block::<S, P, 1>(simd, step, a, row, panel, out);
        row += 1;
    }
}

/// `ROWS` rows from `row` on.
#[inline(always)]
fn block<S: Simd, P: Step, const ROWS: usize>(
    simd: S,
    step: P,
    a: Matrix<'_>,
    row: usize,
    panel: &[f32],
    out: &mut Tile<'_>,
) {
    let rows: [&[f32]; ROWS] = std::array::from_fn(|i| a.row(row + i));
    let (panel, _) = panel[..panel_len(a.cols)].as_chunks::<COLUMNS>();
    let mut sums = [[simd.splat(0.0); 2]; ROWS];
    if out.add {
        for (i, sums) in sums.iter_mut().enumerate() {
            let (left, right) = halves(&out.data[(row + i) * out.stride..][..out.cols]);
            *sums = [simd.load_first(left), simd.load_first(right)];
        }
    }
    for (k, b) in panel.iter().enumerate() {
        let b = [simd.load(lanes_at(b, 0)), simd.load(lanes_at(b, LANES))];
        for (sums, of) in sums.iter_mut().zip(&rows) {
            let x = simd.splat(of[k]);
            *sums = [step.step(simd, sums[0], x, b[0]), step.step(simd, sums[1], x, b[1])];
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        let to = &mut out.data[(row + i) * out.stride..][..out.cols];
        let (left, right) = to.split_at_mut(to.len().min(LANES));
        sums[0].store_first(left);
        sums[1].store_first(right);
    }
}

#[inline(always)]
fn halves(of: &[f32]) -> (&[f32], &[f32]) {
    of.split_at(of.len().min(LANES))
}
