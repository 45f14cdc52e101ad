//! Products of float32 matrices: a microkernel over panels of [`COLUMNS`] columns.
//!
//! The right matrix is laid out in panels `[k][COLUMNS]` (zeros beyond its last column), by one of the
//! `pack_*` functions or by whoever makes its numbers (a dequantizer). The left one is read as it lies.
//! One source is compiled for several instruction sets; which one runs is [`Path`]'s or the processor's
//! choice. Each sum runs over k in order, in one accumulator.

use crate::how::Path;

/// Columns of a panel.
pub const COLUMNS: usize = 32;

/// A matrix, row-major with `stride` elements from row to row.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
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
pub struct Tile<'a> {
    /// The memory, from the first element on.
    pub data: &'a mut [f32],
    /// Columns that are written.
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Adds to what is there instead of replacing it.
    pub add: bool,
}

/// Elements of a panel over `k`.
pub const fn panel_len(k: usize) -> usize {
    k * COLUMNS
}

/// Packs rows `first..` of `of` `[n, k]` as columns: for a product with its transpose.
pub fn pack_rows(of: Matrix<'_>, first: usize, panel: &mut [f32]) {
    let there = of.rows.saturating_sub(first).min(COLUMNS);
    let panel = &mut panel[..panel_len(of.cols)];
    if there < COLUMNS {
        panel.fill(0.0);
    }
    for column in 0..there {
        for (to, &from) in panel.iter_mut().skip(column).step_by(COLUMNS).zip(of.row(first + column)) {
            *to = from;
        }
    }
}

/// Packs columns `first..` of `of` `[k, n]`.
pub fn pack_columns(of: Matrix<'_>, first: usize, panel: &mut [f32]) {
    let there = of.cols.saturating_sub(first).min(COLUMNS);
    for (k, to) in panel.chunks_exact_mut(COLUMNS).take(of.rows).enumerate() {
        to[..there].copy_from_slice(&of.row(k)[first..first + there]);
        to[there..].fill(0.0);
    }
}

/// `out[i][j] = Σ_k a[i][k] · panel[k][j]`, fused multiply-adds where the instructions have them.
pub fn multiply(path: Path, a: Matrix<'_>, panel: &[f32], out: Tile<'_>) {
    match widest(path) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `widest` answers only what the processor has.
        Path::Avx512 => unsafe { multiply_avx512(a, panel, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Path::Avx2 => unsafe { multiply_avx2(a, panel, out) },
        _ => rows_of::<{ !cfg!(target_arch = "x86_64") }, 2>(a, panel, out),
    }
}

/// The instructions a path means on this processor: the widest it has, of those asked for.
pub fn widest(path: Path) -> Path {
    #[cfg(target_arch = "x86_64")]
    {
        let (avx512, avx2) = (
            std::arch::is_x86_feature_detected!("avx512f"),
            std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma"),
        );
        match path {
            Path::Auto | Path::Avx512 if avx512 => return Path::Avx512,
            Path::Auto | Path::Avx512 | Path::Avx2 if avx2 => return Path::Avx2,
            _ => {}
        }
    }
    let _ = path;
    Path::Portable
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn multiply_avx512(a: Matrix<'_>, panel: &[f32], out: Tile<'_>) {
    rows_of::<true, 12>(a, panel, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_avx2(a: Matrix<'_>, panel: &[f32], out: Tile<'_>) {
    rows_of::<true, 3>(a, panel, out);
}

/// All rows, `MOST` at a time.
#[inline(always)]
fn rows_of<const FMA: bool, const MOST: usize>(a: Matrix<'_>, panel: &[f32], mut out: Tile<'_>) {
    let mut row = 0;
    while row + MOST <= a.rows {
        block::<FMA, MOST>(a, row, panel, &mut out);
        row += MOST;
    }
    while MOST > 4 && row + 4 <= a.rows {
        block::<FMA, 4>(a, row, panel, &mut out);
        row += 4;
    }
    while row < a.rows {
        block::<FMA, 1>(a, row, panel, &mut out);
        row += 1;
    }
}

/// `ROWS` rows from `row` on.
#[inline(always)]
fn block<const FMA: bool, const ROWS: usize>(
    a: Matrix<'_>,
    row: usize,
    panel: &[f32],
    out: &mut Tile<'_>,
) {
    let rows: [&[f32]; ROWS] = std::array::from_fn(|i| a.row(row + i));
    let mut sums = [[0.0_f32; COLUMNS]; ROWS];
    let (panel, _) = panel.as_chunks::<COLUMNS>();
    for (k, b) in panel.iter().enumerate().take(a.cols) {
        for (sum, of) in sums.iter_mut().zip(&rows) {
            let x = of[k];
            for (sum, &b) in sum.iter_mut().zip(b) {
                *sum = if FMA { x.mul_add(b, *sum) } else { x * b + *sum };
            }
        }
    }
    for (i, sum) in sums.iter().enumerate() {
        let to = &mut out.data[(row + i) * out.stride..][..out.cols];
        for (to, &sum) in to.iter_mut().zip(sum) {
            *to = if out.add { *to + sum } else { sum };
        }
    }
}
