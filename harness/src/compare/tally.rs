//! Counting how two runs of elements of one dtype differ, piece by piece.

use mlx_parity_tensor::Dtype;

use super::histogram::{BUCKETS, Histogram, bucket_of};
use super::ulp::{Distance, Layout, distance_of_bits};
use super::words::{self, BLOCK};

/// Bytes compared at once before anything is counted.
const CHUNK: usize = 1 << 16;
/// Buckets a 32-bit distance can fall in.
const NARROW: usize = 34;

/// What is known about the elements seen so far. Pieces may come in any order and be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    dtype: Dtype,
    elements: u64,
    differ: u64,
    zero_sign: u64,
    nan_payload: u64,
    sign: u64,
    infinite: u64,
    nan: u64,
    max_ulp: u64,
    counts: [u64; BUCKETS],
    first: Option<usize>,
    worst: Option<(Distance, usize)>,
    limit: u64,
    over: u64,
}

impl Tally {
    /// Nothing seen yet.
    pub fn new(dtype: Dtype) -> Self {
        Self::with_limit(dtype, 0)
    }

    /// Nothing seen yet; differing elements farther apart than `limit` ULP, or without a distance, will be counted.
    pub fn with_limit(dtype: Dtype, limit: u64) -> Self {
        Self {
            dtype,
            elements: 0,
            differ: 0,
            zero_sign: 0,
            nan_payload: 0,
            sign: 0,
            infinite: 0,
            nan: 0,
            max_ulp: 0,
            counts: [0; BUCKETS],
            first: None,
            worst: None,
            limit,
            over: 0,
        }
    }

    /// Nothing seen yet, of the same kind.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self::with_limit(self.dtype, self.limit)
    }

    /// Counts two equally long runs of elements, the first of which has flat index `start` in its tensor.
    pub fn add(&mut self, start: usize, got: &[u8], want: &[u8]) {
        let size = self.dtype.size();
        self.elements += (got.len() / size) as u64;
        for (at, (got, want)) in got.chunks(CHUNK).zip(want.chunks(CHUNK)).enumerate() {
            if got != want {
                self.add_chunk(start + at * (CHUNK / size), got, want);
            }
        }
    }

    fn add_chunk(&mut self, start: usize, got: &[u8], want: &[u8]) {
        let bytes = BLOCK * self.dtype.size();
        for (at, (got, want)) in got.chunks(bytes).zip(want.chunks(bytes)).enumerate() {
            if got != want {
                self.add_block(start + at * BLOCK, got, want);
            }
        }
    }

    fn add_block(&mut self, start: usize, got: &[u8], want: &[u8]) {
        let block = match (self.dtype.size(), Layout::of(self.dtype)) {
            (8, Some(layout)) => wide_block(got, want, |a, b, codes| floats64(layout, a, b, codes)),
            (8, None) => wide_block(got, want, |a, b, codes| integers64(self.flip(), a, b, codes)),
            (size, Some(layout)) => {
                narrow_block(size, got, want, |a, b, codes| floats32(layout, a, b, codes))
            }
            (size, None) => {
                narrow_block(size, got, want, |a, b, codes| integers32(self.flip(), a, b, codes))
            }
        };
        self.place(&block, start, got, want);
        self.absorb(&block);
    }

    /// What turns two's complement into an order of unsigned numbers.
    fn flip(&self) -> u64 {
        match self.dtype {
            Dtype::I8 => 1 << 7,
            Dtype::I16 => 1 << 15,
            Dtype::I32 => 1 << 31,
            Dtype::I64 => 1 << 63,
            _ => 0,
        }
    }

    fn absorb(&mut self, block: &Block) {
        self.differ += block.differ;
        self.zero_sign += block.zero_sign;
        self.nan_payload += block.nan_payload;
        self.sign += block.sign;
        self.infinite += block.infinite;
        self.nan += block.nan;
        self.max_ulp = self.max_ulp.max(block.max_ulp);
        for (count, more) in self.counts.iter_mut().zip(block.counts) {
            *count += u64::from(more);
        }
    }

    /// Looks at single elements of a block, where it holds one that can matter.
    fn place(&mut self, block: &Block, start: usize, got: &[u8], want: &[u8]) {
        let farthest = block.farthest();
        let differing = || differing_elements(self.dtype, got, want);
        if self.first.is_none_or(|first| start < first) {
            let first = differing().next().map(|(at, _)| start + at);
            self.first = first.or(self.first);
        }
        if !farthest.within(self.limit) {
            self.over += differing().filter(|(_, d)| !d.within(self.limit)).count() as u64;
        }
        let known = |(worst, at)| worst > farthest || (worst == farthest && at < start);
        if !self.worst.is_some_and(known) {
            let worst = differing().find(|(_, distance)| *distance == farthest);
            self.offer(worst.map(|(at, distance)| (distance, start + at)));
        }
    }

    /// Keeps the farther of two elements, the first one of equally far ones.
    fn offer(&mut self, other: Option<(Distance, usize)>) {
        let rank = |(distance, at): (Distance, usize)| (distance, std::cmp::Reverse(at));
        self.worst = match (self.worst, other) {
            (Some(a), Some(b)) => Some(if rank(b) > rank(a) { b } else { a }),
            (a, b) => a.or(b),
        };
    }

    /// Adds what another tally of the same tensor has seen.
    pub fn merge(&mut self, other: &Self) {
        self.elements += other.elements;
        self.differ += other.differ;
        self.zero_sign += other.zero_sign;
        self.nan_payload += other.nan_payload;
        self.sign += other.sign;
        self.infinite += other.infinite;
        self.nan += other.nan;
        self.max_ulp = self.max_ulp.max(other.max_ulp);
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.offer(other.worst);
        self.over += other.over;
    }

    /// Counts a run of elements that is known to be equal.
    pub fn skip(&mut self, elements: usize) {
        self.elements += elements as u64;
    }

    /// Elements compared.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Elements whose bits differ.
    pub fn differ(&self) -> u64 {
        self.differ
    }

    /// Differing elements farther apart than the limit, or without a distance.
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Differing elements that are zeros of opposite sign.
    pub fn zero_sign(&self) -> u64 {
        self.zero_sign
    }

    /// Differing elements that are both NaN.
    pub fn nan_payload(&self) -> u64 {
        self.nan_payload
    }

    /// Flat index of the first differing element.
    pub fn first(&self) -> Option<usize> {
        self.first
    }

    /// The farthest pair and the flat index where it comes first.
    pub fn worst(&self) -> Option<(Distance, usize)> {
        self.worst
    }

    /// Greatest distance among differing elements that have one; `None` when there are none.
    pub fn max_ulp(&self) -> Option<u64> {
        (self.differ > self.apart()).then_some(self.max_ulp)
    }

    /// Differing elements without a distance.
    fn apart(&self) -> u64 {
        self.sign + self.infinite + self.nan
    }

    /// Differing elements by distance.
    pub fn histogram(&self) -> Histogram {
        let mut counts = self.counts;
        // Equal elements have code 0 too, so that bucket is what the others leave over.
        counts[0] = 0;
        counts[0] = self.differ - self.apart() - counts.iter().sum::<u64>();
        Histogram::new(&counts, self.sign, self.infinite, self.nan)
    }
}

/// The elements whose bits differ, by position, with their distance.
pub fn differing_elements<'a>(
    dtype: Dtype,
    got: &'a [u8],
    want: &'a [u8],
) -> impl Iterator<Item = (usize, Distance)> + 'a {
    let size = dtype.size();
    let bits = move |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    };
    let pairs = got.chunks_exact(size).zip(want.chunks_exact(size)).enumerate();
    pairs
        .filter(|(_, (a, b))| a != b)
        .map(move |(at, (a, b))| (at, distance_of_bits(dtype, bits(a), bits(b))))
}

/// One block's counts.
struct Block {
    differ: u64,
    zero_sign: u64,
    nan_payload: u64,
    sign: u64,
    infinite: u64,
    nan: u64,
    max_ulp: u64,
    counts: [u32; BUCKETS],
}

impl Block {
    fn farthest(&self) -> Distance {
        match (self.nan, self.infinite, self.sign) {
            (0, 0, 0) => Distance::Ulps(self.max_ulp),
            (0, 0, _) => Distance::Sign,
            (0, _, _) => Distance::Infinite,
            _ => Distance::Nan,
        }
    }
}

fn narrow_block(
    size: usize,
    got: &[u8],
    want: &[u8],
    classify: impl Fn(&[u32; BLOCK], &[u32; BLOCK], &mut [u32; BLOCK]) -> Block,
) -> Block {
    let (mut a, mut b, mut codes) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
    words::bits32(size, got, &mut a);
    words::bits32(size, want, &mut b);
    let mut block = classify(&a, &b, &mut codes);
    block.counts[..NARROW].copy_from_slice(&count_narrow(&codes));
    block
}

/// Counts codes by bucket, over four tables so that equal neighbours do not wait for each other.
fn count_narrow(codes: &[u32; BLOCK]) -> [u32; NARROW] {
    let mut tables = [[0u32; NARROW]; 4];
    for four in codes.as_chunks::<4>().0 {
        for (table, code) in tables.iter_mut().zip(four) {
            table[bucket_of(u64::from(*code))] += 1;
        }
    }
    std::array::from_fn(|bucket| tables.iter().map(|table| table[bucket]).sum())
}

fn wide_block(
    got: &[u8],
    want: &[u8],
    classify: impl Fn(&[u64; BLOCK], &[u64; BLOCK], &mut [u64; BLOCK]) -> Block,
) -> Block {
    let (mut a, mut b, mut codes) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
    words::bits64(got, &mut a);
    words::bits64(want, &mut b);
    let mut block = classify(&a, &b, &mut codes);
    for code in codes {
        block.counts[bucket_of(code)] += 1;
    }
    block
}

/// The distance of each pair of floats as a code, 0 where there is none, and how many have which relation.
///
/// The loop has no branches, so that the compiler turns it into vector code.
macro_rules! float_kernel {
    ($name:ident, $word:ty) => {
        fn $name(
            layout: Layout,
            got: &[$word; BLOCK],
            want: &[$word; BLOCK],
            codes: &mut [$word; BLOCK],
        ) -> Block {
            let (sign_bit, last) = (layout.sign as $word, layout.last as $word);
            // No magnitude has all bits set, except in a format without sign, whose largest codes are NaN.
            let infinity = layout.infinity.map_or(<$word>::MAX, |bits| bits as $word);
            let mut sums: [$word; 6] = [0; 6];
            let mut max_ulp: $word = 0;
            for ((x, y), code) in got.iter().zip(want).zip(codes) {
                let (m, n) = (x & !sign_bit, y & !sign_bit);
                let differ = x != y;
                let (got_nan, want_nan) = (m > last, n > last);
                let nan = differ & (got_nan | want_nan);
                let infinite = differ & !nan & ((m == infinity) | (n == infinity));
                let opposite = (x ^ y) & sign_bit != 0;
                let nonzero = (m != 0) & (n != 0);
                let sign = opposite & nonzero & !nan & !infinite;
                let near = !(nan | infinite | sign);
                let ulps = if opposite { m | n } else { m.abs_diff(n) };
                *code = if near { ulps } else { 0 };
                max_ulp = max_ulp.max(*code);
                sums[0] += <$word>::from(differ);
                sums[1] += <$word>::from(differ & (m == 0) & (n == 0));
                sums[2] += <$word>::from(differ & got_nan & want_nan);
                sums[3] += <$word>::from(sign);
                sums[4] += <$word>::from(infinite);
                sums[5] += <$word>::from(nan);
            }
            let [differ, zero_sign, nan_payload, sign, infinite, nan] = sums.map(u64::from);
            let (max_ulp, counts) = (u64::from(max_ulp), [0; BUCKETS]);
            Block { differ, zero_sign, nan_payload, sign, infinite, nan, max_ulp, counts }
        }
    };
}

float_kernel!(floats32, u32);
float_kernel!(floats64, u64);

/// The absolute difference of each pair of integers, which `flip` makes order like unsigned ones.
macro_rules! integer_kernel {
    ($name:ident, $word:ty) => {
        fn $name(
            flip: u64,
            got: &[$word; BLOCK],
            want: &[$word; BLOCK],
            codes: &mut [$word; BLOCK],
        ) -> Block {
            let flip = flip as $word;
            let (mut differ, mut max_ulp): ($word, $word) = (0, 0);
            for ((x, y), code) in got.iter().zip(want).zip(codes) {
                *code = (x ^ flip).abs_diff(y ^ flip);
                max_ulp = max_ulp.max(*code);
                differ += <$word>::from(x != y);
            }
            Block {
                differ: u64::from(differ),
                zero_sign: 0,
                nan_payload: 0,
                sign: 0,
                infinite: 0,
                nan: 0,
                max_ulp: u64::from(max_ulp),
                counts: [0; BUCKETS],
            }
        }
    };
}

integer_kernel!(integers32, u32);
integer_kernel!(integers64, u64);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same from single elements, with none of the block machinery.
    fn naive(dtype: Dtype, got: &[u8], want: &[u8]) -> Tally {
        let mut tally = Tally::new(dtype);
        let size = dtype.size();
        let bits = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..size].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        };
        for (at, (a, b)) in got.chunks(size).zip(want.chunks(size)).enumerate() {
            let (a, b) = (bits(a), bits(b));
            tally.elements += 1;
            if a != b {
                naive_pair(&mut tally, at, a, b);
            }
        }
        tally
    }

    fn naive_pair(tally: &mut Tally, at: usize, a: u64, b: u64) {
        let distance = distance_of_bits(tally.dtype, a, b);
        tally.differ += 1;
        match distance {
            Distance::Nan => tally.nan += 1,
            Distance::Infinite => tally.infinite += 1,
            Distance::Sign => tally.sign += 1,
            Distance::Ulps(ulps) => {
                tally.counts[bucket_of(ulps)] += 1;
                tally.max_ulp = tally.max_ulp.max(ulps);
            }
        }
        if let Some(Layout { sign, last, .. }) = Layout::of(tally.dtype) {
            let (m, n) = (a & !sign, b & !sign);
            tally.zero_sign += u64::from(m == 0 && n == 0);
            tally.nan_payload += u64::from(m > last && n > last);
        }
        tally.first.get_or_insert(at);
        tally.over += u64::from(!distance.within(tally.limit));
        if tally.worst.is_none_or(|(worst, _)| distance > worst) {
            tally.worst = Some((distance, at));
        }
    }

    fn check(dtype: Dtype, got: &[u8], want: &[u8]) {
        let mut whole = Tally::new(dtype);
        whole.add(0, got, want);
        let wanted = naive(dtype, got, want);
        assert_eq!(whole.histogram(), wanted.histogram(), "{dtype}");
        assert_eq!(Tally { counts: wanted.counts, ..whole.clone() }, wanted, "{dtype}");

        let middle = got.len() / dtype.size() / 2;
        let mut late = Tally::new(dtype);
        late.add(middle, &got[middle * dtype.size()..], &want[middle * dtype.size()..]);
        let mut early = Tally::new(dtype);
        early.add(0, &got[..middle * dtype.size()], &want[..middle * dtype.size()]);
        late.merge(&early);
        assert_eq!(Tally { counts: whole.counts, ..late }, whole, "{dtype} in two pieces");
    }

    #[test]
    fn all_pairs_of_8_bit_elements() {
        let got: Vec<u8> = (0..=255u8).flat_map(|a| [a; 256]).collect();
        let want: Vec<u8> = (0..=255u8).cycle().take(1 << 16).collect();
        for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.size() == 1) {
            check(dtype, &got, &want);
        }
    }

    #[test]
    fn a_chunk_boundary_loses_nothing() {
        for len in [CHUNK - 4, CHUNK, CHUNK + 4, 3 * CHUNK + 8] {
            let got = vec![0u8; len];
            for at in [0, CHUNK / 2, len - 1] {
                let mut want = got.clone();
                want[at] = 1;
                check(Dtype::F32, &got, &want);
                check(Dtype::F64, &got[..len / 8 * 8], &want[..len / 8 * 8]);
            }
        }
    }

    #[test]
    fn equal_runs_count_no_difference() {
        let bytes: Vec<u8> = (0..CHUNK * 2).map(|b| (b * 7) as u8).collect();
        let mut tally = Tally::new(Dtype::Bf16);
        tally.add(0, &bytes, &bytes);
        assert_eq!((tally.elements(), tally.differ()), (CHUNK as u64, 0));
        assert_eq!((tally.first(), tally.worst(), tally.max_ulp()), (None, None, None));
        assert_eq!(tally.histogram(), Histogram::default());
    }

    proptest! {
        #[test]
        fn random_bits_agree_with_single_elements(
            dtype in proptest::sample::select(&Dtype::ALL[..]),
            len in 0usize..3000,
            seed: u64,
            changes in proptest::collection::vec((any::<usize>(), 0u8..8), 0..50),
            unrelated: bool,
        ) {
            let got = noise(seed, len * dtype.size());
            // Unrelated bytes let signs, infinities and NaNs meet; changed bits keep most elements equal.
            let mut want = if unrelated { noise(!seed, got.len()) } else { got.clone() };
            for (at, bit) in changes {
                let at = at % got.len().max(1);
                if let Some(byte) = want.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            check(dtype, &got, &want);
        }
    }

    /// Bytes of a xorshift generator, from a seed that shrinks with the case.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }
}
