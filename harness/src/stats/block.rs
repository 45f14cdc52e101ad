//! Logits of a row, block by block, in float64.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the narrowest registers"
)]

use half::bf16;
use mlx_parity_tensor::{Dtype, bf16_to_f32};

use crate::compare::vector::{Kernel, vectorized};

/// Logits of a block: few enough that its arrays stay in the first-level cache.
pub(super) const BLOCK: usize = 512;
/// Independent parts of each sum. The answer depends on this number, and on nothing of the machine.
pub(super) const LANES: usize = 16;

/// What stands behind the end of a row: as low as a finite logit can be, so that it adds nothing.
const BEHIND: f64 = f32::MIN as f64;

/// A row of logits as bytes, of a float dtype.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) dtype: Dtype,
    pub(super) bytes: &'a [u8],
}

/// One block, widened. A vector that is loaded from it is on one line of the cache.
#[repr(align(64))]
pub(super) struct Block(pub(super) [f64; BLOCK]);

impl Block {
    pub(super) const fn new() -> Self {
        Self([0.0; BLOCK])
    }

    #[inline(always)]
    pub(super) fn lanes(&self) -> &[[f64; LANES]] {
        self.0.as_chunks().0
    }
}

impl Row<'_> {
    /// The greatest logit of the first block; a NaN is passed over.
    pub(super) fn first_maximum(self) -> f64 {
        vectorized(WidenPass { row: self, at: 0, block: &mut Block::new() })
    }

    /// The logits of block `at`, widened into `block`.
    pub(super) fn block(self, at: usize, block: &mut Block) -> &[f64] {
        vectorized(WidenPass { row: self, at, block });
        &block.0[..BLOCK.min(self.len() - at * BLOCK)]
    }

    pub(super) fn blocks(self) -> usize {
        self.len().div_ceil(BLOCK)
    }

    fn len(self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Fills `block` with the logits of block `at`, and gives the greatest of them; a NaN is passed over.
    #[inline(always)]
    pub(super) fn widen(self, at: usize, block: &mut Block) -> f64 {
        match self.dtype {
            Dtype::F32 => fill(self.bytes, at, block, |b| f32::from_le_bytes(b).into()),
            Dtype::F16 => fill(self.bytes, at, block, |b| widened_f16(b).into()),
            Dtype::Bf16 => {
                fill(self.bytes, at, block, |b| bf16_to_f32(bf16::from_le_bytes(b)).into());
            }
            _ => fill(self.bytes, at, block, |b| narrow(f64::from_le_bytes(b))),
        }
        maximum(block)
    }
}

struct WidenPass<'a, 'b> {
    row: Row<'a>,
    at: usize,
    block: &'b mut Block,
}

impl Kernel for WidenPass<'_, '_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        self.row.widen(self.at, self.block)
    }
}

/// Each loop does one thing: those that do more are compiled badly.
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
        block.0.fill(BEHIND);
        for (x, element) in block.0.iter_mut().zip(rest) {
            *x = value(*element);
        }
    }
}

#[inline(always)]
fn maximum(block: &Block) -> f64 {
    let mut maxima = [BEHIND; LANES];
    for lanes in block.lanes() {
        for (max, x) in maxima.iter_mut().zip(lanes) {
            *max = larger(*max, *x);
        }
    }
    // One by one: halves of halves would have the loop above compiled for narrow registers.
    maxima.into_iter().fold(BEHIND, larger)
}

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// The sum of the sums of both halves.
#[inline(always)]
pub(super) fn pairwise(mut lanes: [f64; LANES]) -> f64 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Widens without a branch: the exponent's bias is mended by a product, which is exact for subnormal numbers too.
#[inline(always)]
fn widened_f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let magnitude = bits & 0x7fff;
    // Infinity and NaN have the greatest exponent in both formats.
    let exponent = if magnitude >= 0x7c00 { 0x7f80_0000 } else { 0 };
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((254 - 15) << 23);
    f32::from_bits(scaled.to_bits() | exponent | (bits & 0x8000) << 16)
}

/// A logit beyond the range of float32 is as good as infinite, and its products could overflow.
#[inline(always)]
fn narrow(x: f64) -> f64 {
    if x.abs() <= f64::from(f32::MAX) { x } else { x * f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn every_f16_is_widened() {
        for bits in 0..=u16::MAX {
            let (found, wanted) = (widened_f16(bits.to_le_bytes()), f16::from_bits(bits).to_f32());
            assert!(found == wanted || found.is_nan() && wanted.is_nan(), "{bits:#x}");
        }
    }
}
