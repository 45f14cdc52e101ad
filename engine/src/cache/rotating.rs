//! `RotatingKVCache` of `mlx_lm/models/cache.py`: a window of positions.
//!
//! A single new row overwrites the oldest one in place, so rows stand in rotated order; several new
//! rows first bring the old ones back into order. The first `keep` rows are never overwritten.

use mlx_rs::Array;
use serde::{Deserialize, Serialize};

use super::buffers::range;
use super::{Buffers, MaskRule, Part, STEP, refuse_beyond};
use crate::error::EngineError;
use crate::ops::Mask;

/// Keeps at most `max_size` positions while tokens come one by one, and up to `max_size - 1` old
/// ones beside a longer chunk, so that each of its tokens sees `max_size` positions.
#[derive(Debug, Clone)]
pub struct RotatingCache<T = Array> {
    buffers: Option<Buffers<T>>,
    offset: i32,
    /// Where the next single row goes.
    index: i32,
    max_size: i32,
    keep: i32,
}

/// Where a rotating cache stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counters {
    pub(super) offset: i32,
    pub(super) index: i32,
    pub(super) max_size: i32,
    pub(super) keep: i32,
}

impl RotatingCache {
    /// An empty cache of `max_size` positions of which the first `keep` stay for ever.
    pub fn new(max_size: i32, keep: i32) -> Self {
        Self::empty(max_size, keep)
    }

    /// Takes new rows in and returns the rows that may be attended to: in buffer order after a
    /// single row, in temporal order after several.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<(Array, Array), EngineError> {
        let seen = self.push(&Buffers { keys: keys.clone(), values: values.clone() })?;
        Ok((seen.keys, seen.values))
    }
}

impl<T: Part> RotatingCache<T> {
    pub(super) fn empty(max_size: i32, keep: i32) -> Self {
        Self { buffers: None, offset: 0, index: 0, max_size, keep }
    }

    /// Tokens seen so far, the forgotten ones included.
    pub fn offset(&self) -> i32 {
        self.offset
    }

    /// Positions it keeps.
    pub fn max_size(&self) -> i32 {
        self.max_size
    }

    pub(crate) fn newest(&self) -> i32 {
        self.index - 1
    }

    pub(crate) fn buffers(&self) -> Option<&Buffers<T>> {
        self.buffers.as_ref()
    }

    pub(super) fn buffers_mut(&mut self) -> Option<&mut Buffers<T>> {
        self.buffers.as_mut()
    }

    /// The cache that held `buffers` and stood at `counters`.
    pub(super) fn restored(buffers: Option<Buffers<T>>, counters: Counters) -> Self {
        let Counters { offset, index, max_size, keep } = counters;
        Self { buffers, offset, index, max_size, keep }
    }

    pub(super) fn counters(&self) -> Counters {
        let Self { offset, index, max_size, keep, .. } = *self;
        Counters { offset, index, max_size, keep }
    }

    /// `is_trimmable`: no position has been forgotten yet, so the newest rows are the last ones.
    pub fn is_trimmable(&self) -> bool {
        self.offset < self.max_size
    }

    /// `trim`: forgets the newest `count` positions, at most all, and returns how many. Only right
    /// where [`RotatingCache::is_trimmable`]; elsewhere nothing is done and 0 returned, as
    /// `trim_prompt_cache` of the reference does.
    pub fn trim(&mut self, count: i32) -> i32 {
        if !self.is_trimmable() {
            return 0;
        }
        let count = count.min(self.offset);
        self.offset -= count;
        self.index -= count;
        count
    }

    /// The newest positions that [`RotatingCache::rollback`] can take back: all while none has been
    /// forgotten; else those of the last write, since beside its rows a write keeps as many old ones as
    /// the position it began at may attend to.
    pub fn revocable(&self) -> i32 {
        let rows = self.rows();
        if rows == self.offset { rows } else { (rows - (self.max_size - 1)).max(0) }
    }

    /// Takes the newest `count` positions back, past the wrap too: the buffers lose their rows, and
    /// what is left stands in temporal order. The next position sees what it would have seen had they
    /// never been written. The reference has no such trim: its own leaves the rows of a wrapped window
    /// where later positions attend to them.
    ///
    /// # Errors
    /// [`EngineError::NotRevocable`] where that is more than [`RotatingCache::revocable`], and
    /// [`EngineError::Op`] where MLX throws; nothing is taken back.
    pub fn rollback(&mut self, count: i32) -> Result<(), EngineError> {
        refuse_beyond(self.revocable(), count)?;
        let rows = self.rows() - count;
        if let Some(buffers) = &self.buffers {
            let left = buffers.map(|buffer| range(&self.in_order(buffer)?, 0, rows))?;
            self.buffers = Some(left);
        }
        self.offset -= count;
        self.index = rows;
        Ok(())
    }

    /// Positions whose rows are there.
    fn rows(&self) -> i32 {
        match &self.buffers {
            Some(buffers) if self.index < self.offset => buffers.capacity(),
            Some(_) => self.index,
            None => 0,
        }
    }

    /// Counts positions as seen whose rows nobody wrote.
    pub(super) fn skip(&mut self, count: i32) {
        self.offset += count;
        self.index += count;
    }

    /// Takes new rows in and returns the rows that may be attended to: in buffer order after a
    /// single row, in temporal order after several.
    pub(super) fn push(&mut self, rows: &Buffers<T>) -> Result<Buffers<T>, EngineError> {
        if rows.capacity() == 1 { self.replace(rows) } else { self.append(rows) }
    }

    /// `_update_concat`: old rows in order, cut to the window, then the new ones.
    fn append(&mut self, rows: &Buffers<T>) -> Result<Buffers<T>, EngineError> {
        let buffers = match self.buffers.take() {
            None => rows.clone(),
            Some(old) => {
                let old = old.map(|buffer| self.in_order(buffer))?;
                let surplus = old.capacity() - self.max_size + 1;
                Buffers {
                    keys: self.cut(&old.keys, surplus, Some(&rows.keys))?,
                    values: self.cut(&old.values, surplus, Some(&rows.values))?,
                }
            }
        };
        self.offset += rows.capacity();
        self.index = buffers.capacity();
        self.buffers = Some(buffers.clone());
        Ok(buffers)
    }

    /// `_update_in_place`: grow until the window is full, then overwrite the oldest row.
    fn replace(&mut self, rows: &Buffers<T>) -> Result<Buffers<T>, EngineError> {
        let mut buffers = self.with_room(rows)?;
        let surplus = buffers.capacity() - self.max_size;
        if surplus > 0 {
            buffers = buffers.map(|buffer| self.cut(buffer, surplus, None))?;
            self.index = self.max_size;
        }
        if self.index == self.max_size {
            self.index = self.keep;
        }
        buffers.write(self.index, self.index + 1, rows)?;
        self.offset += 1;
        self.index += 1;
        let seen = buffers.filled(self.offset)?;
        self.buffers = Some(buffers);
        Ok(seen)
    }

    /// The buffers, longer by up to a step where they are full but shorter than the window, as they
    /// are behind a rollback past the wrap too.
    fn with_room(&mut self, rows: &Buffers<T>) -> Result<Buffers<T>, EngineError> {
        let filled = self.buffers.as_ref().map_or(0, Buffers::capacity);
        let fresh = || rows.more(STEP.min(self.max_size - filled));
        let grown = match self.buffers.take() {
            None => fresh()?,
            Some(old) if self.offset >= old.capacity() && old.capacity() < self.max_size => {
                old.join(&fresh()?)?
            }
            Some(old) => return Ok(old),
        };
        self.index = filled;
        Ok(grown)
    }

    /// `_temporal_order`: oldest row first, unused rows dropped.
    pub(super) fn in_order(&self, buffer: &T) -> Result<T, EngineError> {
        let rows = buffer.positions();
        if self.index == rows {
            return Ok(buffer.clone());
        }
        if self.index >= self.offset {
            return range(buffer, 0, self.index);
        }
        let kept = range(buffer, 0, self.keep)?;
        let older = range(buffer, self.index, rows)?;
        let newer = range(buffer, self.keep, self.index)?;
        T::join(&[&kept, &older, &newer])
    }

    /// `_trim`: without the `surplus` oldest rows behind the kept ones, with `extra` rows appended.
    fn cut(&self, buffer: &T, surplus: i32, extra: Option<&T>) -> Result<T, EngineError> {
        let mut parts = Vec::with_capacity(3);
        if surplus > 0 {
            parts.push(range(buffer, 0, self.keep)?);
            parts.push(range(buffer, surplus + self.keep, buffer.positions())?);
        } else {
            parts.push(buffer.clone());
        }
        parts.extend(extra.cloned());
        T::join(&parts.iter().collect::<Vec<_>>())
    }

    /// `make_mask`: for several positions an array once the window cuts, else MLX's causal mask; for
    /// a single one nothing, unless a window shorter than the cache asks for a rotated array. Kept
    /// positions stay in sight; the reference hides them from several positions at once.
    ///
    /// # Errors
    /// [`EngineError::MaskRule`] for a window of nothing, or one that is kept whole.
    pub fn mask(&self, count: i32, window: Option<i32>) -> Result<Mask, EngineError> {
        if count == 1 {
            return self.single_mask(window);
        }
        let window = window.unwrap_or(self.max_size);
        let keys = self.offset.min(self.max_size - 1) + count;
        let rule = MaskRule::causal(count, keys)?.within_window(window, self.keep)?;
        Ok(if keys <= window { Mask::Causal } else { Mask::Allowed(rule.allowed()) })
    }

    fn single_mask(&self, window: Option<i32>) -> Result<Mask, EngineError> {
        let Some(window) = window else { return Ok(Mask::Full) };
        if self.offset < window || self.max_size <= window {
            return Ok(Mask::Full);
        }
        let newest = if self.index >= self.max_size { self.keep } else { self.index };
        let rows = (self.offset + 1).min(self.max_size);
        let rule = MaskRule::causal(1, rows)?.within_window(window, self.keep)?;
        Ok(Mask::Allowed(rule.rotated(newest)))
    }
}
