//! Sums over one row of logits, in vector code.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the narrowest registers"
)]

use half::bf16;
use mlx_parity_tensor::{Dtype, bf16_to_f32};

use super::exp::exp;
use crate::compare::vector::{Kernel, vectorized};

/// Logits of a block: few enough that its arrays stay in the first-level cache.
pub(super) const BLOCK: usize = 256;
/// Independent parts of each sum. The answer depends on this number, and on nothing of the machine.
const LANES: usize = 16;

/// A row of logits as bytes, of a float dtype.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) dtype: Dtype,
    pub(super) bytes: &'a [u8],
}

/// A row, a number that is taken off each of its logits before they are exponentiated, and room for the greatest logit
/// of each block.
pub(super) struct Lane<'a> {
    pub(super) row: Row<'a>,
    pub(super) pivot: f64,
    pub(super) maxima: &'a mut Vec<f64>,
}

/// Sums over a row, where t and s are logits less their pivots.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sums {
    /// Σ eᵗ.
    pub(super) t: f64,
    /// Σ eˢ.
    pub(super) s: f64,
    /// Σ eᵗ·(t − s).
    pub(super) t_gap: f64,
    /// Σ eˢ·(t − s).
    pub(super) s_gap: f64,
    /// Σ eᵗ·t.
    pub(super) t_t: f64,
    /// Σ eˢ·s.
    pub(super) s_s: f64,
}

/// One block, widened. A vector that is loaded from it is on one line of the cache.
#[repr(align(64))]
pub(super) struct Block([f64; BLOCK]);

impl Block {
    pub(super) const fn new() -> Self {
        Self([0.0; BLOCK])
    }

    #[inline(always)]
    fn lanes(&self) -> &[[f64; LANES]] {
        self.0.as_chunks().0
    }
}

impl Row<'_> {
    /// The greatest logit of the first block; a NaN is passed over.
    pub(super) fn first_maximum(self) -> f64 {
        let mut block = Block::new();
        self.block(0, &mut block);
        maximum(&block)
    }

    /// The logits of block `at`, widened into `block`.
    pub(super) fn block(self, at: usize, block: &mut Block) -> &[f64] {
        vectorized(WidenPass { row: self, at, block });
        &block.0[..BLOCK.min(self.len() - at * BLOCK)]
    }

    fn len(self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    fn blocks(self) -> usize {
        self.len().div_ceil(BLOCK)
    }

    /// Block `at`; behind the end of the row are the lowest numbers, which add nothing to any sum.
    #[inline(always)]
    fn widen(self, at: usize, block: &mut Block) {
        match self.dtype {
            Dtype::F32 => fill(self.bytes, at, block, |b| f64::from(f32::from_le_bytes(b))),
            Dtype::F16 => fill(self.bytes, at, block, |b| f64::from(finite_f16(b))),
            Dtype::Bf16 => {
                fill(self.bytes, at, block, |b| f64::from(bf16_to_f32(bf16::from_le_bytes(b))));
            }
            _ => fill(self.bytes, at, block, f64::from_le_bytes),
        }
    }
}

struct WidenPass<'a, 'b> {
    row: Row<'a>,
    at: usize,
    block: &'b mut Block,
}

impl Kernel for WidenPass<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.row.widen(self.at, self.block);
    }
}

#[inline(always)]
fn fill<const N: usize>(
    bytes: &[u8],
    at: usize,
    block: &mut Block,
    value: impl Fn([u8; N]) -> f64,
) {
    let rest = &bytes.as_chunks::<N>().0[at * BLOCK..];
    if let Some(whole) = rest.first_chunk::<BLOCK>() {
        for (x, element) in block.0.iter_mut().zip(whole) {
            *x = value(*element);
        }
    } else {
        block.0.fill(f64::MIN);
        for (x, element) in block.0.iter_mut().zip(rest) {
            *x = value(*element);
        }
    }
}

/// Widens without a branch: the exponent's bias is mended by a product, which is exact for subnormal numbers too.
#[inline(always)]
fn finite_f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let magnitude = bits & 0x7fff;
    // Infinity and NaN have the greatest exponent in both formats.
    let exponent = if magnitude >= 0x7c00 { 0x7f80_0000 } else { 0 };
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((254 - 15) << 23);
    f32::from_bits(scaled.to_bits() | exponent | (bits & 0x8000) << 16)
}

#[inline(always)]
fn maximum(block: &Block) -> f64 {
    let larger = |max: f64, x: f64| if x > max { x } else { max };
    let mut maxima = [f64::MIN; LANES];
    for lanes in block.lanes() {
        for (max, x) in maxima.iter_mut().zip(lanes) {
            *max = larger(*max, *x);
        }
    }
    maxima.into_iter().fold(f64::MIN, larger)
}

/// Takes the pivot off a block, and exponentiates.
#[inline(always)]
fn exponentiate(pivot: f64, block: &mut Block, powers: &mut Block) {
    for (x, power) in block.0.iter_mut().zip(&mut powers.0) {
        *x -= pivot;
        *power = exp(*x);
    }
}

/// Sums of two rows of one length, and the greatest logit of each of their blocks. A sum that is not finite means a
/// logit that is not, or one too far above its pivot.
pub(super) fn sums<'a>(teacher: Lane<'a>, student: Lane<'a>) -> Sums {
    vectorized(SumPass { teacher, student })
}

struct SumPass<'a> {
    teacher: Lane<'a>,
    student: Lane<'a>,
}

impl Kernel for SumPass<'_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        let Self { teacher, student } = self;
        teacher.maxima.clear();
        student.maxima.clear();
        let [mut t, mut s, mut power_t, mut power_s] = [const { Block::new() }; 4];
        let mut totals = [Total::default(); 6];
        for at in 0..teacher.row.blocks() {
            teacher.row.widen(at, &mut t);
            student.row.widen(at, &mut s);
            teacher.maxima.push(maximum(&t));
            student.maxima.push(maximum(&s));
            exponentiate(teacher.pivot, &mut t, &mut power_t);
            exponentiate(student.pivot, &mut s, &mut power_s);
            for (total, part) in totals.iter_mut().zip(block_sums(&t, &s, &power_t, &power_s)) {
                total.add(part);
            }
        }
        let [t, s, t_gap, s_gap, t_t, s_s] = totals.map(Total::value);
        Sums { t, s, t_gap, s_gap, t_t, s_s }
    }
}

/// In the order of the fields of [`Sums`].
#[inline(always)]
fn block_sums(t: &Block, s: &Block, power_t: &Block, power_s: &Block) -> [f64; 6] {
    let mut sums = [[0.0; LANES]; 6];
    let logits = t.lanes().iter().zip(s.lanes());
    let powers = power_t.lanes().iter().zip(power_s.lanes());
    for ((t, s), (power_t, power_s)) in logits.zip(powers) {
        for lane in 0..LANES {
            let (t, s, p, q) = (t[lane], s[lane], power_t[lane], power_s[lane]);
            let gap = t - s;
            sums[0][lane] += p;
            sums[1][lane] += q;
            sums[2][lane] = p.mul_add(gap, sums[2][lane]);
            sums[3][lane] = q.mul_add(gap, sums[3][lane]);
            sums[4][lane] = p.mul_add(t, sums[4][lane]);
            sums[5][lane] = q.mul_add(s, sums[5][lane]);
        }
    }
    sums.map(|lanes| pairwise(lanes))
}

#[inline(always)]
fn pairwise(mut lanes: [f64; LANES]) -> f64 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// A compensated sum (Knuth's two-sum; Ogita, Rump and Oishi, "Accurate sum and dot product", 2005).
#[derive(Clone, Copy, Default)]
struct Total {
    sum: f64,
    lost: f64,
}

impl Total {
    #[inline(always)]
    fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        let kept = sum - self.sum;
        self.lost += (self.sum - (sum - kept)) + (x - kept);
        self.sum = sum;
    }

    #[inline(always)]
    fn value(self) -> f64 {
        self.sum + self.lost
    }
}

/// Σ |eᵗ·`scale_t` − eˢ·`scale_s`| of two rows of one length.
pub(super) fn distance(
    [teacher, student]: [Row<'_>; 2],
    pivots: [f64; 2],
    scales: [f64; 2],
) -> f64 {
    vectorized(DistancePass { teacher, student, pivots, scales })
}

struct DistancePass<'a> {
    teacher: Row<'a>,
    student: Row<'a>,
    pivots: [f64; 2],
    scales: [f64; 2],
}

impl Kernel for DistancePass<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let [mut t, mut s, mut power_t, mut power_s] = [const { Block::new() }; 4];
        let mut total = Total::default();
        for at in 0..self.teacher.blocks() {
            self.teacher.widen(at, &mut t);
            self.student.widen(at, &mut s);
            exponentiate(self.pivots[0], &mut t, &mut power_t);
            exponentiate(self.pivots[1], &mut s, &mut power_s);
            total.add(block_distance(&power_t, &power_s, self.scales));
        }
        total.value()
    }
}

#[inline(always)]
fn block_distance(power_t: &Block, power_s: &Block, [scale_t, scale_s]: [f64; 2]) -> f64 {
    let mut sums = [0.0; LANES];
    let powers = power_t.lanes().iter().zip(power_s.lanes());
    for (power_t, power_s) in powers {
        for ((sum, p), q) in sums.iter_mut().zip(power_t).zip(power_s) {
            *sum += (p * scale_t - q * scale_s).abs();
        }
    }
    pairwise(sums)
}
