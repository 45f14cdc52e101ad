//! The memory that caches take.

use super::{Composition, KvBits};
use crate::cache::{KvCache, STEP};
use crate::model::Model;

impl Composition {
    /// The bytes of a model's caches behind `tokens` tokens of one sequence, where no residual widens
    /// them and no call takes more than a window's tokens at the end: for each cache of rows
    /// `2 * heads * width` values a position, in whole steps of 256 positions and at most its window's, a
    /// value taking its dtype's size or `bits / 8` and a share `1 / group` of a scale and a bias.
    pub fn cache_bytes(&self, model: &Model, tokens: usize) -> usize {
        let caches = model.network().new_caches();
        let bytes = |(i, cache)| self.bytes_of(model, i, cache, tokens);
        caches.iter().enumerate().map(bytes).sum()
    }

    fn bytes_of(&self, model: &Model, i: usize, cache: &KvCache, tokens: usize) -> usize {
        let size = model.dtype().size();
        let steps = tokens.next_multiple_of(STEP as usize);
        let positions = match cache {
            KvCache::Rotating(ring) => steps.min(ring.max_size() as usize),
            KvCache::Recurrent(state) => return if tokens == 0 { 0 } else { state.bytes(size) },
            _ => steps,
        };
        let [heads, width] = model.network().kv_shape(i);
        let row = match self.bits(i) {
            None => width * size,
            Some(KvBits { bits, group }) => {
                width * bits as usize / 8 + 2 * (width / group as usize) * size
            }
        };
        2 * heads * positions * row
    }
}
