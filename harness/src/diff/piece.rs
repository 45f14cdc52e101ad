//! All that is counted about a run of elements.

use mlx_parity_tensor::{Dtype, TensorView};

use super::Options;
use super::bound::Bound;
use super::worst::{Rank, Worst};
use crate::compare::{Distance, Moments, Tally, differing_elements};

/// Bytes compared at once before anything is counted; also what is looked at element by element.
const CHUNK: usize = 1 << 16;

#[derive(Debug, Clone)]
pub(super) struct Piece {
    dtype: Dtype,
    bound: Bound,
    pub(super) tally: Tally,
    /// Of chunks that differ only: equal ones add nothing to its sums.
    pub(super) moments: Moments,
    pub(super) worst: Worst,
    over_close: u64,
}

impl Piece {
    pub(super) fn new(dtype: Dtype, options: &Options) -> Self {
        let limit = if let Bound::Ulp(ulps) = options.bound { Some(ulps) } else { None };
        Self {
            dtype,
            bound: options.bound,
            tally: Tally::with_limit(dtype, limit),
            moments: Moments::default(),
            worst: Worst::new(options.dump),
            over_close: 0,
        }
    }

    /// Counts equally long runs, the first element of which has index `start` in its tensor.
    pub(super) fn add(&mut self, start: usize, a: &[u8], b: &[u8]) {
        let size = self.dtype.size();
        for (at, (a, b)) in a.chunks(CHUNK).zip(b.chunks(CHUNK)).enumerate() {
            if a == b {
                self.tally.skip(a.len() / size);
            } else {
                self.add_chunk(start + at * (CHUNK / size), a, b);
            }
        }
    }

    fn add_chunk(&mut self, start: usize, a: &[u8], b: &[u8]) {
        if self.needs_elements() {
            self.add_chunk_with_elements(start, a, b);
        } else {
            self.tally.add(start, a, b);
            self.moments.add(self.dtype, start, a, b);
        }
    }

    /// Whether sums alone do not answer what was asked for.
    fn needs_elements(&self) -> bool {
        self.worst.limit() > 0 || matches!(self.bound, Bound::Close(_))
    }

    fn add_chunk_with_elements(&mut self, start: usize, a: &[u8], b: &[u8]) {
        let mut tally = self.tally.fresh();
        tally.add(start, a, b);
        let mut moments = Moments::default();
        moments.add(self.dtype, start, a, b);
        let rank = self.rank(tally.farthest().unwrap_or(Distance::Nan), moments.max_abs);
        if matches!(self.bound, Bound::Close(_)) || self.worst.wants(rank) {
            self.look_at_elements(start, a, b);
        }
        self.tally.merge(&tally);
        self.moments.merge(&moments);
    }

    /// How bad an element is, or at most can be, at this distance and with this error.
    fn rank(&self, distance: Distance, error: f64) -> Rank {
        match (self.bound, distance) {
            (Bound::Close(_), Distance::Ulps(_) | Distance::Sign) => Rank::of_error(error),
            _ => Rank::of_distance(distance),
        }
    }

    fn look_at_elements(&mut self, start: usize, a: &[u8], b: &[u8]) {
        let size = self.dtype.size();
        let shape = [a.len() / size];
        let [Ok(x), Ok(y)] = [a, b].map(|bytes| TensorView::new(self.dtype, &shape, bytes)) else {
            return;
        };
        for (at, distance) in differing_elements(self.dtype, a, b) {
            let (x, y) = (x.value_at(at), y.value_at(at));
            let over = !self.bound.allows(x, y, distance);
            self.over_close += u64::from(over && matches!(self.bound, Bound::Close(_)));
            self.worst.offer(self.rank(distance, x - y), start + at);
        }
    }

    pub(super) fn skip(&mut self, elements: usize) {
        self.tally.skip(elements);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.tally.merge(&other.tally);
        self.moments.merge(&other.moments);
        self.worst.merge(other.worst);
        self.over_close += other.over_close;
    }

    /// Elements that differ by more than the bound.
    pub(super) fn over(&self) -> u64 {
        match self.bound {
            Bound::Exact => self.tally.differ(),
            Bound::Ulp(_) => self.tally.over(),
            Bound::Close(_) => self.over_close,
        }
    }
}
