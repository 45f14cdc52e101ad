//! `BatchRotatingKVCache` of `mlx_lm/models/cache.py`: windows of sequences of several lengths.

use mlx_rs::Array;

use super::rotating::Counters;
use super::rows::{pick, side_by_side};
use super::{Buffers, DeadRows, MaskRule, RotatingCache, STEP};
use crate::error::EngineError;
use crate::ops::{self, Mask, SliceAxis};

/// Turns as a [`RotatingCache`] that keeps nothing for ever; each sequence knows where it stands and how
/// many of its oldest rows are padding.
#[derive(Debug, Clone)]
pub struct PaddedRotatingCache {
    buffers: Option<Buffers>,
    /// Where the next row of each sequence stands in it.
    offsets: Vec<i32>,
    /// Below zero where rows of the sequence have been forgotten.
    padding: Vec<i32>,
    /// Where the next single row goes.
    index: i32,
    /// Rows written so far, as far as the buffers know.
    seen: i32,
    max_size: i32,
    /// Rows stand in rotated order, the oldest at `index`.
    rotated: bool,
}

impl PaddedRotatingCache {
    /// An empty cache of windows of `max_size` rows for sequences that will begin with so much padding.
    pub fn new(max_size: i32, padding: Vec<i32>) -> Self {
        let offsets = padding.iter().map(|padding| -padding).collect();
        Self { buffers: None, offsets, padding, index: 0, seen: 0, max_size, rotated: false }
    }

    /// `merge`: the cache of one sequence, in temporal order and cut to the window.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for a window with rows that are kept for ever, which the reference
    /// forgets; [`EngineError::Op`] where MLX throws.
    pub fn of(alone: &RotatingCache) -> Result<Self, EngineError> {
        let Counters { offset, max_size, keep, .. } = alone.counters();
        if keep > 0 {
            return Err(EngineError::CacheForm {
                found: format!("a window that keeps its first {keep} positions"),
                wanted: "one that keeps none, as several side by side do".to_owned(),
            });
        }
        let held = offset.min(max_size);
        let newest = |buffer: &Array| {
            let rows = alone.in_order(buffer)?;
            ops::rows_of_last_but_one(&rows, rows.dim(2) - held, rows.dim(2))
        };
        let buffers = alone.buffers().map(|buffers| buffers.map(newest)).transpose()?;
        let merged = Self { buffers, index: held, seen: held, ..Self::new(max_size, vec![0]) };
        Ok(Self { offsets: vec![offset], ..merged })
    }

    /// Where the next token of each sequence stands; below zero in padding.
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// Rows seen so far, as far as the buffers know.
    pub fn seen(&self) -> i32 {
        self.seen
    }

    /// Counts padding as rows like others, for a deliberate fault.
    pub(super) fn forget_padding(&mut self) {
        for (offset, padding) in self.offsets.iter_mut().zip(&mut self.padding) {
            *offset += std::mem::take(padding);
        }
    }

    pub(super) fn max_size(&self) -> i32 {
        self.max_size
    }

    pub(super) fn newest(&self) -> i32 {
        self.index - 1
    }

    pub(super) fn buffers(&self) -> Option<&Buffers> {
        self.buffers.as_ref()
    }

    /// Takes new rows in and returns the rows that may be attended to, in the order of
    /// [`RotatingCache::update`].
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<(Array, Array), EngineError> {
        let rows = Buffers { keys: keys.clone(), values: values.clone() };
        let seen = if rows.capacity() == 1 { self.replace(&rows) } else { self.append(&rows) }?;
        Ok((seen.keys, seen.values))
    }

    /// `_update_concat`.
    fn append(&mut self, rows: &Buffers) -> Result<Buffers, EngineError> {
        self.put_in_order()?;
        let buffers = match self.buffers.take() {
            None => rows.clone(),
            Some(old) => {
                let surplus = (self.index - self.max_size + 1).max(0);
                self.forget(surplus);
                let cut = |buffer: &Array| ops::rows_of_last_but_one(buffer, surplus, self.index);
                old.map(cut)?.join(rows)?
            }
        };
        self.advance(rows.capacity());
        self.index = buffers.capacity();
        self.buffers = Some(buffers.clone());
        Ok(buffers)
    }

    /// `_update_in_place`.
    fn replace(&mut self, rows: &Buffers) -> Result<Buffers, EngineError> {
        let mut buffers = self.with_room(rows)?;
        let surplus = buffers.capacity() - self.max_size;
        if surplus > 0 {
            buffers =
                buffers.map(|buffer| ops::rows_of_last_but_one(buffer, surplus, buffer.dim(2)))?;
            self.index = self.max_size;
            self.forget(surplus);
        }
        if self.index == self.max_size {
            self.rotated = true;
            self.index = 0;
        }
        if self.rotated {
            self.forget(1);
        }
        buffers.write(self.index, self.index + 1, rows)?;
        self.advance(1);
        self.index += 1;
        let seen = buffers.filled(self.seen)?;
        self.buffers = Some(buffers);
        Ok(seen)
    }

    /// The buffers, longer by up to a step where they are full but shorter than the window.
    fn with_room(&mut self, rows: &Buffers) -> Result<Buffers, EngineError> {
        let filled = self.buffers.as_ref().map_or(0, Buffers::capacity);
        let fresh = || rows.blank(STEP.min(self.max_size - self.seen));
        let grown = match self.buffers.take() {
            None => fresh()?,
            Some(old) if self.seen >= filled && filled < self.max_size => old.join(&fresh()?)?,
            Some(old) => return Ok(old),
        };
        self.index = self.seen;
        Ok(grown)
    }

    fn advance(&mut self, count: i32) {
        self.seen += count;
        self.offsets.iter_mut().for_each(|offset| *offset += count);
    }

    fn forget(&mut self, count: i32) {
        self.padding.iter_mut().for_each(|padding| *padding -= count);
    }

    /// `_temporal_order`: the oldest row first.
    fn put_in_order(&mut self) -> Result<(), EngineError> {
        if !self.rotated {
            return Ok(());
        }
        if let Some(buffers) = &self.buffers {
            let ordered = buffers.map(|buffer| turned(buffer, self.index))?;
            self.index = ordered.capacity();
            self.buffers = Some(ordered);
        }
        self.rotated = false;
        Ok(())
    }

    /// `make_mask`, `[sequences, 1, count, rows]`, over rows as they will stand behind the update.
    ///
    /// # Errors
    /// [`EngineError::MaskRule`] for no rows or a window of nothing, and [`EngineError::Op`] where MLX
    /// throws.
    pub fn mask(&self, count: i32, window: Option<i32>) -> Result<Mask, EngineError> {
        let window = window.unwrap_or(self.max_size);
        let keys = self.seen.min(self.max_size - 1) + count;
        let single = count == 1;
        let rotated = single && (self.rotated || self.index >= self.max_size);
        let surplus = (self.index - self.max_size + i32::from(!single)).max(0);
        let forgotten = surplus + i32::from(rotated);
        let padding: Vec<i32> = self.padding.iter().map(|padding| padding - forgotten).collect();
        let rule = MaskRule::causal(count, keys)?.within_window(window, 0)?;
        let allowed = rule.padded(&padding, DeadRows::Itself);
        if !rotated {
            return Ok(Mask::Allowed(allowed));
        }
        let index = if self.index >= self.max_size { 0 } else { self.index };
        let cut = (keys - index - 1).rem_euclid(keys);
        let [tail, head] = [SliceAxis::range(cut, keys), SliceAxis::range(0, cut)]
            .map(|range| ops::slice_last(&allowed, range));
        Ok(Mask::Allowed(ops::concatenate(&[&tail?, &head?], -1)?))
    }

    /// `is_trimmable`: no row has been forgotten yet.
    pub fn is_trimmable(&self) -> bool {
        self.seen < self.max_size
    }

    /// `trim`: forgets the newest `count` rows of all sequences and returns how many; none where
    /// [`PaddedRotatingCache::is_trimmable`] says no.
    pub fn trim(&mut self, count: i32) -> i32 {
        if !self.is_trimmable() {
            return 0;
        }
        let count = count.min(self.seen);
        self.index -= count;
        self.advance(-count);
        count
    }

    /// `filter`: the sequences at the given places alone.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn filter(&mut self, keep: &[usize]) -> Result<(), EngineError> {
        let picked = |buffers: &Buffers| buffers.map(|buffer| pick(buffer, keep));
        self.buffers = self.buffers.as_ref().map(picked).transpose()?;
        self.offsets = keep.iter().map(|&at| self.offsets[at]).collect();
        self.padding = keep.iter().map(|&at| self.padding[at]).collect();
        Ok(())
    }

    /// `extend`: other sequences behind these; the newest rows of all stand side by side.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for windows of another size, [`EngineError::Op`] where MLX throws.
    pub fn extend(&mut self, mut other: Self) -> Result<(), EngineError> {
        if other.max_size != self.max_size {
            return Err(EngineError::CacheForm {
                found: format!("a window of {}", other.max_size),
                wanted: format!("one of {}", self.max_size),
            });
        }
        if self.rotated != other.rotated || self.index != other.index {
            self.put_in_order()?;
            other.put_in_order()?;
        }
        let index = self.index.max(other.index);
        let places = [(self.index, self.padding.len()), (other.index, other.padding.len())];
        let buffers = side_by_side([self.buffers(), other.buffers()], places)?;
        for cache in [&mut *self, &mut other] {
            cache.forget(cache.index - index);
        }
        self.padding.extend(other.padding);
        self.offsets.extend(other.offsets);
        self.buffers = buffers;
        self.index = index;
        self.seen = self.seen.max(other.seen);
        Ok(())
    }

    /// `extract`: the cache of the sequence at a place, alone.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn extract(&self, at: usize) -> Result<RotatingCache, EngineError> {
        let padding = self.padding[at].max(0);
        let part = |buffer: &Array| {
            let row = pick(buffer, &[at])?;
            let (row, end) = if self.rotated {
                (turned(&row, self.index)?, row.dim(2))
            } else {
                (row, self.index)
            };
            ops::contiguous(&ops::rows_of_last_but_one(&row, padding, end)?)
        };
        let buffers = self.buffers().map(|buffers| buffers.map(part)).transpose()?;
        let index = buffers.as_ref().map_or(0, Buffers::capacity);
        let (offset, max_size) = (self.offsets[at], self.max_size);
        let counters = Counters { offset, index, max_size, keep: 0 };
        Ok(RotatingCache::restored(buffers, counters))
    }
}

/// The rows from `start` on, then those before it.
fn turned(buffer: &Array, start: i32) -> Result<Array, EngineError> {
    let newer = ops::rows_of_last_but_one(buffer, 0, start)?;
    let older = ops::rows_of_last_but_one(buffer, start, buffer.dim(2))?;
    ops::concatenate(&[&older, &newer], 2)
}
