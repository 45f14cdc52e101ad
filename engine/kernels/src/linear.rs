//! Projections by packed matrices, `x · Wᵀ`, one panel of [`COLUMNS`] outputs at a time.
//!
//! The weights of a panel are dequantized once and used by all rows.

use std::ops::Range;

use crate::affine::{self, Packed};
use crate::gemm::{COLUMNS, Fused, Matrix, Step, Tile, panel_len, product};
use crate::how::How;
use crate::lanes::{F32s, LANES, Simd, Task, U32s, lanes_at_mut};
use crate::numbers::{Bf16, F16, F32};
use crate::parallel;

/// A format that every operation is rounded to, as MLX's CPU backend does: it computes in the format of
/// its operands, one operation at a time (`_qmm_t` of `mlx/backend/cpu/quantized.cpp`).
pub(crate) trait Rounded: Copy + Send + Sync + 'static {
    /// The nearest number of the format, ties to even. What is not a number stays that.
    fn round<S: Simd>(simd: S, x: S::F) -> S::F;
}

impl Rounded for F32 {
    #[inline(always)]
    fn round<S: Simd>(_: S, x: S::F) -> S::F {
        x
    }
}

impl Rounded for Bf16 {
    /// Without a look at NaN: those that come of bfloat16 operands keep their upper half.
    #[inline(always)]
    fn round<S: Simd>(simd: S, x: S::F) -> S::F {
        let bits = x.bits();
        let odd = (bits >> 16) & simd.splat_bits(1);
        ((bits + simd.splat_bits(0x7fff) + odd) & simd.splat_bits(0xffff_0000)).floats()
    }
}

impl Rounded for F16 {
    #[inline(always)]
    fn round<S: Simd>(simd: S, x: S::F) -> S::F {
        let mut half = [0; LANES];
        x.store_f16(&mut half);
        simd.load_f16(&half)
    }
}

/// `sum + x · b`, both operations rounded to a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact<F>(pub F);

impl<F: Rounded> Step for Exact<F> {
    #[inline(always)]
    fn rows(registers: usize) -> usize {
        match registers {
            32.. => 4,
            8.. => 2,
            _ => 1,
        }
    }

    #[inline(always)]
    fn step<S: Simd>(self, simd: S, sum: S::F, x: S::F, b: S::F) -> S::F {
        F::round(simd, sum + F::round(simd, x * b))
    }
}

/// How a product and its weights are computed.
pub(crate) trait Arithmetic: Step {
    /// `code · scale + bias`.
    fn weight<S: Simd>(self, simd: S, code: S::F, scale: S::F, bias: S::F) -> S::F;
}

impl Arithmetic for Fused {
    #[inline(always)]
    fn weight<S: Simd>(self, _: S, code: S::F, scale: S::F, bias: S::F) -> S::F {
        code.mul_add(scale, bias)
    }
}

impl<F: Rounded> Arithmetic for Exact<F> {
    #[inline(always)]
    fn weight<S: Simd>(self, simd: S, code: S::F, scale: S::F, bias: S::F) -> S::F {
        F::round(simd, F::round(simd, scale * code) + bias)
    }
}

/// Outputs `first .. first + COLUMNS` of all rows of `x`, written to `tile` `[rows][COLUMNS]`; zeros
/// beyond the last output.
#[derive(Debug)]
pub(crate) struct Projection<'a, A> {
    /// The arithmetic.
    pub arithmetic: A,
    /// Activations `[rows, weights.cols]`.
    pub x: Matrix<'a>,
    /// The packed matrix.
    pub weights: &'a Packed<'a>,
    /// The first output.
    pub first: usize,
    /// The result.
    pub tile: &'a mut [f32],
    /// With which bugs.
    pub how: How,
}

impl<A: Arithmetic> Task for Projection<'_, A> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { arithmetic, x, weights, first, tile, how } = self;
        // No closures around vectors: one that is not inlined is compiled for the baseline.
        let left = Half::of(simd, weights, (first, 0), how);
        let right = Half::of(simd, weights, (first + LANES, LANES), how);
        let mut panel = vec![0.0; panel_len(INPUTS.min(weights.cols))];
        for start in (0..weights.cols).step_by(INPUTS) {
            let end = weights.cols.min(start + INPUTS);
            for half in [&left, &right].into_iter().flatten() {
                half.dequantize(simd, arithmetic, weights, start..end, how, &mut panel);
            }
            if end == weights.cols && how.is("last_input_dropped") {
                panel[(end - start - 1) * COLUMNS..].fill(0.0);
            }
            let part = Matrix { data: &x.data[start..], cols: end - start, ..x };
            let mut out = Tile { data: tile, cols: COLUMNS, stride: COLUMNS, add: start > 0 };
            product(simd, arithmetic, part, &panel, &mut out);
        }
    }
}

/// Inputs of a panel: a multiple of every group and of 32, few enough that a panel stays in the nearest cache.
const INPUTS: usize = 256;

/// Sixteen outputs of a matrix, as they are packed, for columns `at ..` of a panel.
struct Half {
    at: usize,
    words: Vec<[u32; LANES]>,
    scales: Vec<[f32; LANES]>,
    biases: Vec<[f32; LANES]>,
}

impl Half {
    /// The outputs from `first` on; none where there are none.
    #[inline(always)]
    fn of<S: Simd>(
        simd: S,
        weights: &Packed<'_>,
        (first, at): (usize, usize),
        how: How,
    ) -> Option<Self> {
        let there = weights.rows.saturating_sub(first).min(LANES);
        if there == 0 {
            return None;
        }
        let words = columns_of_words(simd, weights, first, there);
        let [scales, biases] = weights.columns_of_scales(first, there, how);
        Some(Self { at, words, scales, biases })
    }

    /// Weights of some inputs, to a panel that begins with the first of them.
    #[inline(always)]
    fn dequantize<S: Simd, A: Arithmetic>(
        &self,
        simd: S,
        arithmetic: A,
        weights: &Packed<'_>,
        inputs: Range<usize>,
        how: How,
        panel: &mut [f32],
    ) {
        let (bits, per) = (weights.bits, 32 / weights.bits as usize);
        let lost = u32::from(how.is("high_bit_lost"));
        let mask = simd.splat_bits(u32::MAX >> (32 - bits + lost));
        // Groups are powers of two.
        let group = weights.group.trailing_zeros();
        let (rows, _) = panel.as_chunks_mut::<COLUMNS>();
        if 32 % bits == 0 {
            let words = &self.words[inputs.start / per..inputs.end.div_ceil(per)];
            for (index, (words, rows)) in words.iter().zip(rows.chunks_mut(per)).enumerate() {
                let at = (inputs.start + index * per) >> group;
                let mut codes = simd.load_bits(words);
                for row in rows {
                    self.put(simd, arithmetic, at, codes & mask, row);
                    codes = codes >> bits;
                }
            }
            return;
        }
        for (k, row) in inputs.zip(rows) {
            let (word, shift) = affine::position(k, bits);
            let mut codes = simd.load_bits(&self.words[word]) >> shift;
            if shift + bits > 32 {
                codes = codes | simd.load_bits(&self.words[word + 1]) << (32 - shift);
            }
            self.put(simd, arithmetic, k >> group, codes & mask, row);
        }
    }

    /// Sixteen weights of one group, to their columns of one input.
    #[inline(always)]
    fn put<S: Simd, A: Arithmetic>(
        &self,
        simd: S,
        arithmetic: A,
        group: usize,
        codes: S::U,
        row: &mut [f32; COLUMNS],
    ) {
        let (scale, bias) = (simd.load(&self.scales[group]), simd.load(&self.biases[group]));
        let weight = arithmetic.weight(simd, codes.to_f32(), scale, bias);
        weight.store(lanes_at_mut(row, self.at));
    }
}

/// Word w of rows `first ..`, one row in each lane; zeros in those beyond the last.
#[inline(always)]
fn columns_of_words<S: Simd>(
    simd: S,
    weights: &Packed<'_>,
    first: usize,
    there: usize,
) -> Vec<[u32; LANES]> {
    let len = affine::words(weights.cols, weights.bits);
    let mut words = vec![[0; LANES]; len.next_multiple_of(LANES)];
    for (block, to) in words.chunks_exact_mut(LANES).enumerate() {
        let mut rows = [simd.splat_bits(0); LANES];
        for (lane, row) in rows.iter_mut().enumerate().take(there) {
            *row = simd.load_bits_first(&weights.row(first + lane)[block * LANES..]);
        }
        for (to, column) in to.iter_mut().zip(simd.transpose(rows)) {
            column.store(to);
        }
    }
    words
}

/// The arithmetic of two bugs of kernels that claim to be exact.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loose<F> {
    /// The format.
    pub format: F,
    /// Products and sums stay in float32.
    pub float_sum: bool,
    /// A weight is rounded once, after the sum with the bias.
    pub weight_once: bool,
}

impl<F: Rounded> Step for Loose<F> {
    #[inline(always)]
    fn rows(_: usize) -> usize {
        1
    }

    #[inline(always)]
    fn step<S: Simd>(self, simd: S, sum: S::F, x: S::F, b: S::F) -> S::F {
        if self.float_sum { x.mul_add(b, sum) } else { Exact(self.format).step(simd, sum, x, b) }
    }
}

impl<F: Rounded> Arithmetic for Loose<F> {
    #[inline(always)]
    fn weight<S: Simd>(self, simd: S, code: S::F, scale: S::F, bias: S::F) -> S::F {
        if self.weight_once {
            return F::round(simd, scale.mul_add(code, bias));
        }
        Exact(self.format).weight(simd, code, scale, bias)
    }
}

/// Computes `out` `[rows, width]` by tiles: `tile(first)` gives `[rows][COLUMNS]` elements, those of outputs
/// `first ..`. `work` counts the multiply-adds of all.
pub(crate) fn columns<T: Copy + Send>(
    out: &mut [T],
    rows: usize,
    width: usize,
    work: usize,
    how: How,
    tile: impl Fn(usize) -> Vec<T> + Send + Sync,
) {
    let mut count = width.div_ceil(COLUMNS);
    if how.is("tail_skipped") {
        count = width / COLUMNS;
    }
    let tiles = parallel::map(count, work, |index| tile(index * COLUMNS));
    let stale = how.is("stale_row") && rows > 1 && !rows.is_multiple_of(4);
    for (row, out) in out.chunks_exact_mut(width.max(1)).take(rows).enumerate() {
        let from = if stale && row + 1 == rows { row - 1 } else { row };
        for (out, tile) in out.chunks_mut(COLUMNS).zip(&tiles) {
            out.copy_from_slice(&tile[from * COLUMNS..][..out.len()]);
        }
    }
}
