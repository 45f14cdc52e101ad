//! Counting a run of elements block by block, in vector code where no NaN or infinity is in one.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the narrowest registers"
)]

use mlx_parity_tensor::Dtype;

use super::histogram::{BUCKETS, bucket_of};
use super::ulp::{Distance, Layout, distance_of_bits};
use super::vector::{BLOCK, Kernel, vectorized};

/// Buckets that a 32-bit distance can fall in.
const NARROW: usize = 34;
/// Tables that neighbours are counted in.
const TABLES: usize = 8;

/// The counts of a run. Bucket 0 counts equal elements too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) differ: u64,
    pub(super) nan_payload: u64,
    pub(super) sign: u64,
    pub(super) infinite: u64,
    pub(super) nan: u64,
    pub(super) max_ulp: u64,
    pub(super) counts: [u32; BUCKETS],
}

impl Block {
    /// Counts equally long runs of elements, fewer than 2³² of them.
    pub(super) fn of(dtype: Dtype, got: &[u8], want: &[u8]) -> Self {
        vectorized(RunOf { dtype, got, want })
    }

    fn add(&mut self, other: &Self) {
        self.differ += other.differ;
        self.nan_payload += other.nan_payload;
        self.sign += other.sign;
        self.infinite += other.infinite;
        self.nan += other.nan;
        self.max_ulp = self.max_ulp.max(other.max_ulp);
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }

    /// The farthest that a pair of the run is apart.
    pub(super) fn farthest(&self) -> Distance {
        match (self.nan, self.infinite, self.sign) {
            (0, 0, 0) => Distance::Ulps(self.max_ulp),
            (0, 0, _) => Distance::Sign,
            (0, _, _) => Distance::Infinite,
            _ => Distance::Nan,
        }
    }

    const fn empty() -> Self {
        Self {
            differ: 0,
            nan_payload: 0,
            sign: 0,
            infinite: 0,
            nan: 0,
            max_ulp: 0,
            counts: [0; BUCKETS],
        }
    }

    fn one_by_one(dtype: Dtype, got: &[u8], want: &[u8]) -> Self {
        let mut block = Self::empty();
        for Pair { bits: [a, b], distance, .. } in differing_pairs(dtype, got, want) {
            block.differ += 1;
            match distance {
                Distance::Nan => block.nan += 1,
                Distance::Infinite => block.infinite += 1,
                Distance::Sign => block.sign += 1,
                Distance::Ulps(ulps) => {
                    block.counts[bucket_of(ulps)] += 1;
                    block.max_ulp = block.max_ulp.max(ulps);
                }
            }
            if let Some(Layout { sign, last, .. }) = Layout::of(dtype) {
                let (m, n) = (a & !sign, b & !sign);
                block.nan_payload += u64::from(m > last && n > last);
            }
        }
        block
    }
}

/// The elements whose bits differ, by position, with their distance.
pub fn differing_elements<'a>(
    dtype: Dtype,
    got: &'a [u8],
    want: &'a [u8],
) -> impl Iterator<Item = (usize, Distance)> + 'a {
    differing_pairs(dtype, got, want).map(|pair| (pair.at, pair.distance))
}

struct Pair {
    at: usize,
    bits: [u64; 2],
    distance: Distance,
}

fn differing_pairs<'a>(
    dtype: Dtype,
    got: &'a [u8],
    want: &'a [u8],
) -> impl Iterator<Item = Pair> + 'a {
    let size = dtype.size();
    let bits = move |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    };
    let pairs = got.chunks_exact(size).zip(want.chunks_exact(size)).enumerate();
    pairs.filter(|(_, (a, b))| a != b).map(move |(at, (a, b))| {
        let bits = [bits(a), bits(b)];
        Pair { at, bits, distance: distance_of_bits(dtype, bits[0], bits[1]) }
    })
}

/// Counts a run of blocks.
struct RunOf<'a> {
    dtype: Dtype,
    got: &'a [u8],
    want: &'a [u8],
}

impl Kernel for RunOf<'_> {
    type Output = Block;

    #[inline(always)]
    fn run(self) -> Block {
        match self.dtype.size() {
            1 => self.narrow::<1>(),
            2 => self.narrow::<2>(),
            4 => self.narrow::<4>(),
            _ => self.wide(),
        }
    }
}

impl RunOf<'_> {
    #[inline(always)]
    fn narrow<const N: usize>(self) -> Block {
        let mut total = Block::empty();
        let mut codes = [0; BLOCK];
        let mut tables = Tables([[0; TABLE]; TABLES]);
        for (got, want) in self.differing_blocks() {
            let (a, b) = (got.as_chunks::<N>().0, want.as_chunks::<N>().0);
            codes[a.len()..].fill(0);
            let block = self.narrow_block(a, b, &mut codes, &mut tables);
            total.add(&block.unwrap_or_else(|| Block::one_by_one(self.dtype, got, want)));
        }
        for (count, more) in total.counts.iter_mut().zip(tables.total()) {
            *count += more;
        }
        total
    }

    #[inline(always)]
    fn narrow_block<const N: usize>(
        &self,
        a: &[[u8; N]],
        b: &[[u8; N]],
        codes: &mut [u32; BLOCK],
        tables: &mut Tables,
    ) -> Option<Block> {
        if let Some(layout) = Layout::of(self.dtype) {
            let block = floats32(layout, a, b, codes)?;
            tables.count(codes);
            return Some(block);
        }
        let mut block = integers32(order_bit(self.dtype), a, b, codes);
        for code in codes {
            block.counts[bucket_of(u64::from(*code))] += 1;
        }
        Some(block)
    }

    #[inline(always)]
    fn wide(self) -> Block {
        let mut total = Block::empty();
        let mut codes = [0; BLOCK];
        for (got, want) in self.differing_blocks() {
            let (a, b) = (got.as_chunks::<8>().0, want.as_chunks::<8>().0);
            codes[a.len()..].fill(0);
            let block = self.wide_block(a, b, &mut codes);
            total.add(&block.unwrap_or_else(|| Block::one_by_one(self.dtype, got, want)));
        }
        total
    }

    #[inline(always)]
    fn wide_block(&self, a: &[[u8; 8]], b: &[[u8; 8]], codes: &mut [u64; BLOCK]) -> Option<Block> {
        let mut block = match Layout::of(self.dtype) {
            Some(layout) => floats64(layout, a, b, codes)?,
            None => integers64(order_bit(self.dtype), a, b, codes),
        };
        for code in codes {
            block.counts[bucket_of(*code)] += 1;
        }
        Some(block)
    }

    #[inline(always)]
    fn differing_blocks(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let bytes = BLOCK * self.dtype.size();
        self.got.chunks(bytes).zip(self.want.chunks(bytes)).filter(|(got, want)| got != want)
    }
}

/// The bit that, flipped, makes two's complement order like unsigned numbers.
const fn order_bit(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::I8 => 1 << 7,
        Dtype::I16 => 1 << 15,
        Dtype::I32 => 1 << 31,
        Dtype::I64 => 1 << 63,
        _ => 0,
    }
}

/// Bucket of a distance below 2³¹, as [`bucket_of`] gives it, by operations that vector units have.
///
/// The position of the highest bit is read from the exponent of a float. With the bit below the highest cleared where
/// it was set, rounding to 24 bits cannot carry into the next power of two.
#[inline(always)]
fn small_bucket(ulps: u32) -> u32 {
    const BIAS: u32 = 127 - 2;
    let below = ulps.max(1) - 1;
    let leading = (below & !(below >> 1)).cast_signed() as f32;
    let bucket = (leading.to_bits() >> 23).max(BIAS) - BIAS;
    // 0 and 1 have no bit below; they are their own buckets.
    bucket.max(ulps.min(1))
}

/// Wide distances are sorted into buckets one by one.
#[inline(always)]
fn unsorted(ulps: u64) -> u64 {
    ulps
}

/// Counts by bucket; neighbours go to different tables, so that equal ones do not wait for each other.
#[derive(Clone, Copy)]
struct Tables([[u32; TABLE]; TABLES]);

/// A power of two above [`NARROW`], so that a mask keeps every bucket in range.
const TABLE: usize = 64;

impl Tables {
    #[inline(always)]
    fn count(&mut self, buckets: &[u32; BLOCK]) {
        for neighbours in buckets.as_chunks::<TABLES>().0 {
            for (table, bucket) in self.0.iter_mut().zip(neighbours) {
                table[*bucket as usize % TABLE] += 1;
            }
        }
    }

    fn total(&self) -> [u32; NARROW] {
        std::array::from_fn(|bucket| self.0.iter().map(|table| table[bucket]).sum())
    }
}

#[inline(always)]
fn widen32<const N: usize>(element: &[u8; N]) -> u32 {
    let mut wide = [0; 4];
    wide[..N].copy_from_slice(element);
    u32::from_le_bytes(wide)
}

#[inline(always)]
fn widen64<const N: usize>(element: &[u8; N]) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(element);
    u64::from_le_bytes(wide)
}

/// Distances of pairs of floats, or their buckets (0 where the signs are opposite and neither is zero), and how many are how related;
/// `None` where a NaN or an infinity is among them.
///
/// All conditions are 0 or 1 by arithmetic: comparisons that feed logic do not become good vector code.
macro_rules! float_kernel {
    ($name:ident, $word:ty, $widen:ident, $code:ident) => {
        #[inline(always)]
        fn $name<const N: usize>(
            layout: Layout,
            got: &[[u8; N]],
            want: &[[u8; N]],
            codes: &mut [$word; BLOCK],
        ) -> Option<Block> {
            let sign_bit = layout.sign as $word;
            let shift = layout.sign.trailing_zeros() % <$word>::BITS;
            let mut sums: [$word; 2] = [0; 2];
            let (mut max_ulp, mut max_magnitude): ($word, $word) = (0, 0);
            for ((x, y), code) in got.iter().zip(want).zip(codes) {
                let (x, y) = ($widen(x), $widen(y));
                let (m, n) = (x & !sign_bit, y & !sign_bit);
                let opposite = ((x ^ y) & sign_bit) >> shift;
                let sign = opposite & m.min(1) & n.min(1);
                let ulps = (m.max(n) - m.min(n)) & sign.wrapping_sub(1);
                *code = $code(ulps);
                max_ulp = max_ulp.max(ulps);
                max_magnitude = max_magnitude.max(m | n);
                sums[0] += (x ^ y).min(1);
                sums[1] += sign;
            }
            // The greatest of the unions of two magnitudes is above both; only then is it worth to look closer.
            let special = layout.infinity.unwrap_or(layout.last + 1) as $word;
            let holds_special = || {
                let magnitudes = got.iter().chain(want).map(|word| $widen(word) & !sign_bit);
                magnitudes.fold(0, <$word>::max) >= special
            };
            if max_magnitude >= special && holds_special() {
                return None;
            }
            let ([differ, sign], max_ulp) = (sums.map(u64::from), u64::from(max_ulp));
            Some(Block { differ, sign, max_ulp, ..Block::empty() })
        }
    };
}

float_kernel!(floats32, u32, widen32, small_bucket);
float_kernel!(floats64, u64, widen64, unsorted);

/// Absolute differences of pairs of integers, which `flip` makes order like unsigned ones.
macro_rules! integer_kernel {
    ($name:ident, $word:ty, $widen:ident) => {
        #[inline(always)]
        fn $name<const N: usize>(
            flip: u64,
            got: &[[u8; N]],
            want: &[[u8; N]],
            codes: &mut [$word; BLOCK],
        ) -> Block {
            let flip = flip as $word;
            let (mut differ, mut max_ulp): ($word, $word) = (0, 0);
            for ((x, y), code) in got.iter().zip(want).zip(codes) {
                let (x, y) = ($widen(x), $widen(y));
                let (m, n) = (x ^ flip, y ^ flip);
                *code = m.max(n) - m.min(n);
                max_ulp = max_ulp.max(*code);
                differ += (x ^ y).min(1);
            }
            let (differ, max_ulp) = (u64::from(differ), u64::from(max_ulp));
            Block { differ, max_ulp, ..Block::empty() }
        }
    };
}

integer_kernel!(integers32, u32, widen32);
integer_kernel!(integers64, u64, widen64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_by_float_are_the_buckets() {
        let around = (0..31).flat_map(|bit| [-2i64, -1, 0, 1, 2].map(|by| (1i64 << bit) + by));
        let thirds = (0..31).map(|bit| (3i64 << bit) >> 1);
        let ulps: Vec<u32> =
            around.chain(thirds).filter(|d| (0..1 << 31).contains(d)).map(|d| d as u32).collect();
        for ulps in ulps {
            assert_eq!(small_bucket(ulps) as usize, bucket_of(u64::from(ulps)), "{ulps}");
        }
    }

    #[test]
    fn vector_code_agrees_with_single_elements() {
        let bits = |i: u32| (i.wrapping_mul(0x9e37_79b9) ^ i << 7).to_le_bytes();
        let got: Vec<u8> = (0..600).flat_map(bits).collect();
        let want: Vec<u8> = (0..600).flat_map(|i| bits(i + i % 2)).collect();
        for dtype in Dtype::ALL {
            let mut vector = Block::of(dtype, &got, &want);
            let single = Block::one_by_one(dtype, &got, &want);
            vector.counts[0] = single.counts[0];
            assert_eq!(vector, single, "{dtype}");
        }
    }
}
