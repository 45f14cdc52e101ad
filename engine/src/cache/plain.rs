//! `KVCache` of `mlx_lm/models/cache.py`: every position is kept.

use mlx_rs::Array;

use super::{Buffers, Part, STEP, causal_mask, refuse_beyond};
use crate::error::EngineError;
use crate::nn::Position;
use crate::ops::Mask;

/// Grows by 256 positions at a time and is written in place.
#[derive(Debug, Clone)]
pub struct PlainCache<T = Array> {
    buffers: Option<Buffers<T>>,
    offset: i32,
    length: Option<i32>,
    passing: bool,
}

impl PlainCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::restored(None, 0)
    }

    /// An empty cache that keeps nothing of its first rows and returns them as they are, as mlx-lm's models do
    /// without a cache: for calls over whole sequences.
    pub(crate) fn passing() -> Self {
        Self { passing: true, ..Self::new() }
    }

    /// Writes the new rows behind the last ones and returns views of all rows so far.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<(Array, Array), EngineError> {
        let seen = self.push(&Buffers { keys: keys.clone(), values: values.clone() })?;
        Ok((seen.keys, seen.values))
    }
}

impl Default for PlainCache {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Part> PlainCache<T> {
    /// Tokens seen so far.
    pub fn offset(&self) -> i32 {
        self.offset
    }

    /// Where the next token stands, in a sequence of the length last told to [`PlainCache::expect`].
    pub fn position(&self) -> Position {
        Position { offset: self.offset, length: self.length }
    }

    /// Tells how many tokens the sequence will have after the calls at hand, which rotary encodings
    /// may go by.
    pub fn expect(&mut self, length: i32) {
        self.length = Some(length);
    }

    pub(crate) fn buffers(&self) -> Option<&Buffers<T>> {
        self.buffers.as_ref()
    }

    pub(super) fn buffers_mut(&mut self) -> Option<&mut Buffers<T>> {
        self.buffers.as_mut()
    }

    /// The cache that held `buffers` and had seen `offset` positions.
    pub(super) fn restored(buffers: Option<Buffers<T>>, offset: i32) -> Self {
        Self { buffers, offset, length: None, passing: false }
    }

    /// `trim`: forgets the newest `count` positions, at most all, and returns how many.
    pub fn trim(&mut self, count: i32) -> i32 {
        let count = count.min(self.offset);
        self.offset -= count;
        count
    }

    /// Takes the newest `count` positions back.
    ///
    /// # Errors
    /// [`EngineError::NotRevocable`] where the cache has seen fewer.
    pub fn rollback(&mut self, count: i32) -> Result<(), EngineError> {
        refuse_beyond(self.offset, count)?;
        self.offset -= count;
        Ok(())
    }

    /// Counts positions as seen whose rows nobody wrote.
    pub(super) fn skip(&mut self, count: i32) {
        self.offset += count;
    }

    /// Writes the new rows behind the last ones and returns views of all rows so far.
    pub(super) fn push(&mut self, rows: &Buffers<T>) -> Result<Buffers<T>, EngineError> {
        let (start, stop) = (self.offset, self.offset + rows.capacity());
        if self.passing && start == 0 {
            self.offset = stop;
            return Ok(rows.clone());
        }
        let mut buffers = match self.buffers.take() {
            Some(buffers) if stop <= buffers.capacity() => buffers,
            old => grown(old, start, rows)?,
        };
        buffers.write(start, stop, rows)?;
        self.offset = stop;
        let seen = buffers.filled(stop)?;
        self.buffers = Some(buffers);
        Ok(seen)
    }

    /// `make_mask`: an array under a window, nothing for a single position, else MLX's causal mask.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn mask(&self, count: i32, window: Option<i32>) -> Result<Mask, EngineError> {
        Ok(match (window, count) {
            (Some(_), _) => Mask::Allowed(causal_mask(count, self.offset, window)?),
            (None, 1) => Mask::Full,
            (None, _) => Mask::Causal,
        })
    }
}

/// Room for the new rows in whole steps, behind the filled part of the old buffers.
fn grown<T: Part>(
    old: Option<Buffers<T>>,
    filled_rows: i32,
    rows: &Buffers<T>,
) -> Result<Buffers<T>, EngineError> {
    let room = (STEP + rows.capacity() - 1) / STEP * STEP;
    let Some(old) = old else { return rows.blank(room) };
    let old = if filled_rows % STEP == 0 { old } else { old.filled(filled_rows)? };
    old.join(&old.more(room)?)
}
