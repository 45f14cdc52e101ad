//! Counting how two runs of elements of one dtype differ, piece by piece.

use mlx_parity_tensor::{Dtype, TensorView};

use super::block::{Block, differing_elements};
use super::histogram::{BUCKETS, Histogram};
use super::ulp::Distance;

/// Bytes compared at once before anything is counted.
const CHUNK: usize = 1 << 16;

/// What is known about the elements seen so far. Pieces may come in any order and be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    dtype: Dtype,
    elements: u64,
    differ: u64,
    nan_payload: u64,
    sign: u64,
    infinite: u64,
    nan: u64,
    max_ulp: u64,
    counts: [u64; BUCKETS],
    first: Option<usize>,
    /// The farthest, and the first element of the first chunk that holds one.
    worst: Option<(Distance, usize)>,
    limit: Option<u64>,
    over: u64,
}

impl Tally {
    /// Nothing seen yet.
    pub fn new(dtype: Dtype) -> Self {
        Self::with_limit(dtype, None)
    }

    /// Nothing seen yet; differing elements farther apart than `limit` ULP, or without a distance, will be counted.
    pub fn with_limit(dtype: Dtype, limit: Option<u64>) -> Self {
        Self {
            dtype,
            elements: 0,
            differ: 0,
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
                let (start, block) =
                    (start + at * (CHUNK / size), Block::of(self.dtype, got, want));
                self.place(&block, start, got, want);
                self.absorb(&block);
            }
        }
    }

    fn absorb(&mut self, block: &Block) {
        self.differ += block.differ;
        self.nan_payload += block.nan_payload;
        self.sign += block.sign;
        self.infinite += block.infinite;
        self.nan += block.nan;
        self.max_ulp = self.max_ulp.max(block.max_ulp);
        for (count, more) in self.counts.iter_mut().zip(block.counts) {
            *count += u64::from(more);
        }
    }

    /// Looks at single elements of a chunk, where it holds one that can matter.
    fn place(&mut self, block: &Block, start: usize, got: &[u8], want: &[u8]) {
        let farthest = block.farthest();
        let differing = || differing_elements(self.dtype, got, want);
        if self.first.is_none_or(|first| start < first) {
            let first = differing().next().map(|(at, _)| start + at);
            self.first = first.or(self.first);
        }
        if let Some(limit) = self.limit.filter(|limit| !farthest.within(*limit)) {
            self.over += differing().filter(|(_, d)| !d.within(limit)).count() as u64;
        }
        self.offer(Some((farthest, start)));
    }

    /// Keeps the farther of two chunks, the first one of equally far ones.
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

    /// Differing elements farther apart than the limit, or without a distance; 0 without a limit.
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Differing elements that are zeros of opposite sign.
    pub fn zero_sign(&self) -> u64 {
        self.counts_by_bucket()[0]
    }

    /// Differing elements that are both NaN.
    pub fn nan_payload(&self) -> u64 {
        self.nan_payload
    }

    /// Flat index of the first differing element.
    pub fn first(&self) -> Option<usize> {
        self.first
    }

    /// The farthest that a pair is apart.
    pub fn farthest(&self) -> Option<Distance> {
        self.worst.map(|(distance, _)| distance)
    }

    /// Flat index of the first pair that is the farthest apart, looked up in the tensors that were counted.
    pub fn find_worst(&self, got: &TensorView<'_>, want: &TensorView<'_>) -> Option<usize> {
        let (farthest, start) = self.worst?;
        let size = self.dtype.size();
        let (got, want) = (&got.bytes()[start * size..], &want.bytes()[start * size..]);
        let mut differing = differing_elements(self.dtype, got, want);
        differing.find(|(_, distance)| *distance == farthest).map(|(at, _)| start + at)
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
        Histogram::new(&self.counts_by_bucket(), self.sign, self.infinite, self.nan)
    }

    /// Equal elements are in bucket 0 of the raw counts too, so that bucket is what the others leave over. What
    /// differs by no distance is a zero of the other sign.
    fn counts_by_bucket(&self) -> [u64; BUCKETS] {
        let mut counts = self.counts;
        counts[0] = 0;
        counts[0] = self.differ - self.apart() - counts.iter().sum::<u64>();
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::histogram::bucket_of;
    use super::super::ulp::{Layout, distance_of_bits};
    use super::*;

    const LIMIT: Option<u64> = Some(5);

    /// The same from single elements, with none of the block machinery.
    fn naive(dtype: Dtype, got: &[u8], want: &[u8]) -> Tally {
        let mut tally = Tally::with_limit(dtype, LIMIT);
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
            tally.nan_payload += u64::from(m > last && n > last);
        }
        tally.first.get_or_insert(at);
        tally.over += u64::from(tally.limit.is_some_and(|limit| !distance.within(limit)));
        if tally.worst.is_none_or(|(worst, _)| distance > worst) {
            tally.worst = Some((distance, at));
        }
    }

    fn check(dtype: Dtype, got: &[u8], want: &[u8]) {
        let mut whole = Tally::with_limit(dtype, LIMIT);
        whole.add(0, got, want);
        let wanted = naive(dtype, got, want);
        assert_eq!(whole.histogram(), wanted.histogram(), "{dtype}");
        let shape = [got.len() / dtype.size()];
        let views = [got, want].map(|bytes| TensorView::new(dtype, &shape, bytes).unwrap());
        let found = whole.farthest().zip(whole.find_worst(&views[0], &views[1]));
        assert_eq!(found, wanted.worst, "{dtype}");
        let (counts, worst) = (wanted.counts, wanted.worst);
        assert_eq!(Tally { counts, worst, ..whole.clone() }, wanted, "{dtype}");

        let middle = got.len() / dtype.size() / 2;
        let mut late = whole.fresh();
        late.add(middle, &got[middle * dtype.size()..], &want[middle * dtype.size()..]);
        let mut early = whole.fresh();
        early.add(0, &got[..middle * dtype.size()], &want[..middle * dtype.size()]);
        late.merge(&early);
        assert_eq!(late.find_worst(&views[0], &views[1]), found.map(|(_, at)| at));
        let (counts, worst) = (whole.counts, whole.worst);
        assert_eq!(Tally { counts, worst, ..late }, whole, "{dtype} in two pieces");
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
        assert_eq!((tally.first(), tally.farthest(), tally.max_ulp()), (None, None, None));
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
