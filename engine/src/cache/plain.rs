//! `KVCache` of `mlx_lm/models/cache.py`: every position is kept.

use mlx_rs::Array;

use super::{Buffers, STEP, causal_mask};
use crate::error::EngineError;
use crate::nn::Position;
use crate::ops::{self, Mask};

/// Grows by 256 positions at a time and is written in place.
#[derive(Debug, Clone, Default)]
pub struct PlainCache {
    buffers: Option<Buffers>,
    offset: i32,
    length: Option<i32>,
}

impl PlainCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

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

    pub(crate) fn buffers(&self) -> Option<&Buffers> {
        self.buffers.as_ref()
    }

    pub(super) fn buffers_mut(&mut self) -> Option<&mut Buffers> {
        self.buffers.as_mut()
    }

    /// The cache that held `buffers` and had seen `offset` positions.
    pub(super) fn restored(buffers: Option<Buffers>, offset: i32) -> Self {
        Self { buffers, offset, length: None }
    }

    /// `trim`: forgets the newest `count` positions, at most all, and returns how many.
    pub fn trim(&mut self, count: i32) -> i32 {
        let count = count.min(self.offset);
        self.offset -= count;
        count
    }

    /// Counts positions as seen whose rows nobody wrote.
    pub(super) fn skip(&mut self, count: i32) {
        self.offset += count;
    }

    /// Writes the new rows behind the last ones and returns views of all rows so far.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<(Array, Array), EngineError> {
        let (start, stop) = (self.offset, self.offset + keys.dim(2));
        let mut buffers = match self.buffers.take() {
            Some(buffers) if stop <= buffers.capacity() => buffers,
            old => grown(old, start, keys, values)?,
        };
        ops::set_rows(&mut buffers.keys, start, stop, keys)?;
        ops::set_rows(&mut buffers.values, start, stop, values)?;
        self.offset = stop;
        let seen = filled(&buffers, stop)?;
        self.buffers = Some(buffers);
        Ok((seen.keys, seen.values))
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
fn grown(
    old: Option<Buffers>,
    filled_rows: i32,
    keys: &Array,
    values: &Array,
) -> Result<Buffers, EngineError> {
    let fresh = Buffers { keys: blank(keys)?, values: blank(values)? };
    let Some(old) = old else { return Ok(fresh) };
    let old = if filled_rows % STEP == 0 { old } else { filled(&old, filled_rows)? };
    Ok(Buffers {
        keys: ops::concatenate(&[&old.keys, &fresh.keys], 2)?,
        values: ops::concatenate(&[&old.values, &fresh.values], 2)?,
    })
}

/// Zeros like `rows`, with its number of positions rounded up to whole steps.
fn blank(rows: &Array) -> Result<Array, EngineError> {
    let shape = rows.shape();
    let positions = (STEP + shape[2] - 1) / STEP * STEP;
    ops::zeros(&[shape[0], shape[1], positions, shape[3]], rows.dtype())
}

/// The first `rows` positions; the buffers themselves where they hold no more.
pub(super) fn filled(buffers: &Buffers, rows: i32) -> Result<Buffers, EngineError> {
    if rows < buffers.capacity() {
        buffers.map(|buffer| ops::rows_of_last_but_one(buffer, 0, rows))
    } else {
        Ok(buffers.clone())
    }
}
