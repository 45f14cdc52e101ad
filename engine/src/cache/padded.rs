//! `BatchKVCache` of `mlx_lm/models/cache.py`: sequences of several lengths side by side, those that are
//! shorter with padding on their left.

use mlx_rs::Array;

use super::rows::side_by_side;
use super::{Buffers, DeadRows, MaskRule, PlainCache};
use crate::error::EngineError;
use crate::ops::{self, Mask};

/// Grows and is written as a [`PlainCache`]; each sequence knows how many of its first rows are padding.
#[derive(Debug, Clone)]
pub struct PaddedCache {
    rows: PlainCache,
    padding: Vec<i32>,
}

impl PaddedCache {
    /// An empty cache for sequences that will begin with so much padding each.
    pub fn new(padding: Vec<i32>) -> Self {
        Self { rows: PlainCache::new(), padding }
    }

    /// `merge`: the cache of one sequence, cut to what it holds.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn of(alone: &PlainCache) -> Result<Self, EngineError> {
        let seen = alone.offset();
        let buffers = alone.buffers().map(|buffers| buffers.filled(seen)).transpose()?;
        Ok(Self { rows: PlainCache::restored(buffers, seen), padding: vec![0] })
    }

    /// Rows seen so far, padding among them.
    pub fn seen(&self) -> i32 {
        self.rows.offset()
    }

    /// Where the next token of each sequence stands; below zero in padding.
    pub fn offsets(&self) -> Vec<i32> {
        self.padding.iter().map(|padding| self.seen() - padding).collect()
    }

    /// Rows of padding at the start of each sequence.
    pub fn padding(&self) -> &[i32] {
        &self.padding
    }

    /// For a deliberate fault.
    pub(super) fn padding_mut(&mut self) -> &mut [i32] {
        &mut self.padding
    }

    pub(super) fn buffers(&self) -> Option<&Buffers> {
        self.rows.buffers()
    }

    /// Writes the new rows behind the last ones and returns views of all rows so far.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<(Array, Array), EngineError> {
        self.rows.update(keys, values)
    }

    /// `make_mask`, `[sequences, 1, count, rows]`: an array whatever the count. A row of padding attends
    /// to itself, and to nothing in the reference; no other row sees it.
    ///
    /// # Errors
    /// [`EngineError::MaskRule`] for no rows or a window of nothing.
    pub fn mask(&self, count: i32, window: Option<i32>) -> Result<Mask, EngineError> {
        let rule = MaskRule::causal(count, self.seen() + count)?;
        let rule = window.map_or(Ok(rule), |window| rule.within_window(window, 0))?;
        Ok(Mask::Allowed(rule.padded(&self.padding, DeadRows::Itself)))
    }

    /// `trim`: forgets the newest `count` rows of all sequences, at most all, and returns how many.
    pub fn trim(&mut self, count: i32) -> i32 {
        self.rows.trim(count)
    }

    /// `filter`: the sequences at the given places alone, and what is padding to all of them gone.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn filter(&mut self, keep: &[usize]) -> Result<(), EngineError> {
        let padding: Vec<i32> = keep.iter().map(|&at| self.padding[at]).collect();
        let surplus = padding.iter().copied().min().unwrap_or(0);
        let pick = |buffer: &Array| {
            let rows = super::rows::pick(buffer, keep)?;
            if surplus == 0 {
                return Ok(rows);
            }
            ops::rows_of_last_but_one(&rows, surplus, rows.dim(2))
        };
        let buffers = self.buffers().map(|buffers| buffers.map(pick)).transpose()?;
        self.rows = PlainCache::restored(buffers, self.seen() - surplus);
        self.padding = padding.iter().map(|padding| padding - surplus).collect();
        Ok(())
    }

    /// `extend`: other sequences behind these; the newest rows of all stand side by side.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, as for keys of other heads.
    pub fn extend(&mut self, other: &Self) -> Result<(), EngineError> {
        let index = self.seen().max(other.seen());
        let shifted = |cache: &Self| {
            let shift = index - cache.seen();
            cache.padding.iter().map(move |padding| padding + shift).collect::<Vec<_>>()
        };
        let padding = [shifted(self), shifted(other)].concat();
        let places = [(self.seen(), self.padding.len()), (other.seen(), other.padding.len())];
        let buffers = side_by_side([self.buffers(), other.buffers()], places)?;
        self.rows = PlainCache::restored(buffers, index);
        self.padding = padding;
        Ok(())
    }

    /// `extract`: the cache of the sequence at a place, alone.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn extract(&self, at: usize) -> Result<PlainCache, EngineError> {
        let (padding, seen) = (self.padding[at], self.seen());
        let part = |buffer: &Array| {
            let row = super::rows::pick(buffer, &[at])?;
            ops::contiguous(&ops::rows_of_last_but_one(&row, padding, seen)?)
        };
        let buffers = self.buffers().map(|buffers| buffers.map(part)).transpose()?;
        Ok(PlainCache::restored(buffers, seen - padding))
    }
}
