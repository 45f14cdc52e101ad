//! `RotatingQuantizedKVCache` of mlx-optiq's `runtime/kv/rotating.py`: a window of packed positions.

use mlx_rs::Array;

use super::buffers::Buffers;
use super::{RotatingCache, Rows};
use crate::composition::Route;
use crate::error::EngineError;
use crate::ops::packed::{Mode, Packed};
use crate::ops::{Affine, Mask};

/// Turns and is written as a [`RotatingCache`]; keys and values are packed as they come in.
#[derive(Debug, Clone)]
pub struct RotatingQuantizedCache {
    rows: RotatingCache<Packed>,
    packing: Affine,
    route: Route,
}

impl RotatingQuantizedCache {
    /// An empty cache of `max_size` positions of which the first `keep` stay for ever.
    pub fn new(max_size: i32, keep: i32, packing: Affine, route: Route) -> Self {
        Self { rows: RotatingCache::empty(max_size, keep), packing, route }
    }

    /// `quantize_cache_layer`: what a rotating cache holds, packed where it stands.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn of(ring: &RotatingCache, packing: Affine, route: Route) -> Result<Self, EngineError> {
        let pack = |buffers: &Buffers| buffers.packed(Mode::Affine(packing));
        let buffers = ring.buffers().map(pack).transpose()?;
        Ok(Self { rows: RotatingCache::restored(buffers, ring.counters()), packing, route })
    }

    /// Tokens seen so far, the forgotten ones included.
    pub fn offset(&self) -> i32 {
        self.rows.offset()
    }

    /// How keys and values are packed.
    pub fn packing(&self) -> Affine {
        self.packing
    }

    /// How attention reads them.
    pub fn route(&self) -> Route {
        self.route
    }

    /// `is_trimmable`: as [`RotatingCache::is_trimmable`].
    pub fn is_trimmable(&self) -> bool {
        self.rows.is_trimmable()
    }

    /// `trim`: as [`RotatingCache::trim`].
    pub fn trim(&mut self, count: i32) -> i32 {
        self.rows.trim(count)
    }

    /// Packs new rows, takes them in and returns the rows that may be attended to, in the order of
    /// [`RotatingCache::update`].
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, as for a width that the group size does not divide.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<Rows, EngineError> {
        let rows = Buffers { keys: keys.clone(), values: values.clone() };
        let Buffers { keys, values } = self.rows.push(&rows.packed(Mode::Affine(self.packing))?)?;
        Ok(Rows::Packed { keys, values, route: self.route })
    }

    /// `make_mask`: as [`RotatingCache::mask`].
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn mask(&self, count: i32, window: Option<i32>) -> Result<Mask, EngineError> {
        self.rows.mask(count, window)
    }

    pub(super) fn rows(&self) -> &RotatingCache<Packed> {
        &self.rows
    }

    pub(super) fn rows_mut(&mut self) -> &mut RotatingCache<Packed> {
        &mut self.rows
    }

    /// The cache of these rows.
    pub(super) fn restored(rows: RotatingCache<Packed>, packing: Affine, route: Route) -> Self {
        Self { rows, packing, route }
    }
}
