//! `QuantizedKVCache` of `mlx_lm/models/cache.py`: every position is kept, packed.

use mlx_rs::Array;

use super::buffers::Buffers;
use super::{PlainCache, Rows};
use crate::composition::Route;
use crate::error::EngineError;
use crate::nn::Position;
use crate::ops::packed::{Mode, Packed};
use crate::ops::{Affine, Mask};

/// Grows and is written as a [`PlainCache`]; keys and values are packed as they come in.
#[derive(Debug, Clone)]
pub struct QuantizedCache {
    rows: PlainCache<Packed>,
    packing: Affine,
    route: Route,
}

impl QuantizedCache {
    /// An empty cache.
    pub fn new(packing: Affine, route: Route) -> Self {
        Self { rows: PlainCache::restored(None, 0), packing, route }
    }

    /// `to_quantized`: what a plain cache holds, packed; rows that are not in use too.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn of(plain: &PlainCache, packing: Affine, route: Route) -> Result<Self, EngineError> {
        let pack = |buffers: &Buffers| buffers.packed(Mode::Affine(packing));
        let buffers = plain.buffers().map(pack).transpose()?;
        Ok(Self { rows: PlainCache::restored(buffers, plain.offset()), packing, route })
    }

    /// Tokens seen so far.
    pub fn offset(&self) -> i32 {
        self.rows.offset()
    }

    /// Where the next token stands: as [`PlainCache::position`].
    pub fn position(&self) -> Position {
        self.rows.position()
    }

    /// Tells how many tokens the sequence will have: as [`PlainCache::expect`].
    pub fn expect(&mut self, length: i32) {
        self.rows.expect(length);
    }

    /// How keys and values are packed.
    pub fn packing(&self) -> Affine {
        self.packing
    }

    /// How attention reads them.
    pub fn route(&self) -> Route {
        self.route
    }

    /// `trim`: as [`PlainCache::trim`].
    pub fn trim(&mut self, count: i32) -> i32 {
        self.rows.trim(count)
    }

    /// Packs the new rows, writes them behind the last ones and returns views of all rows so far.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, as for a width that the group size does not divide.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<Rows, EngineError> {
        let rows = Buffers { keys: keys.clone(), values: values.clone() };
        let Buffers { keys, values } = self.rows.push(&rows.packed(Mode::Affine(self.packing))?)?;
        Ok(Rows::Packed { keys, values, route: self.route })
    }

    /// `make_mask`: as [`PlainCache::mask`].
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn mask(&self, count: i32, window: Option<i32>) -> Result<Mask, EngineError> {
        self.rows.mask(count, window)
    }

    pub(super) fn rows(&self) -> &PlainCache<Packed> {
        &self.rows
    }

    pub(super) fn rows_mut(&mut self) -> &mut PlainCache<Packed> {
        &mut self.rows
    }

    /// The cache of these rows.
    pub(super) fn restored(rows: PlainCache<Packed>, packing: Affine, route: Route) -> Self {
        Self { rows, packing, route }
    }
}
