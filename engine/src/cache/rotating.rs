//! `RotatingKVCache` of `mlx_lm/models/cache.py`: a window of positions.
//!
//! A single new row overwrites the oldest one in place, so rows stand in rotated order; several new
//! rows first bring the old ones back into order. The first `keep` rows are never overwritten.

use mlx_rs::Array;
use serde::{Deserialize, Serialize};

use super::plain::filled;
use super::{Buffers, STEP, causal_mask, refuse_beyond};
use crate::error::EngineError;
use crate::ops::{self, Mask};

/// Keeps at most `max_size` positions while tokens come one by one, and up to `max_size - 1` old
/// ones beside a longer chunk, so that each of its tokens sees `max_size` positions.
#[derive(Debug, Clone)]
pub struct RotatingCache {
    buffers: Option<Buffers>,
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
        Self { buffers: None, offset: 0, index: 0, max_size, keep }
    }

    /// Tokens seen so far, the forgotten ones included.
    pub fn offset(&self) -> i32 {
        self.offset
    }

    pub(crate) fn newest(&self) -> i32 {
        self.index - 1
    }

    pub(crate) fn buffers(&self) -> Option<&Buffers> {
        self.buffers.as_ref()
    }

    /// The cache that held `buffers` and stood at `counters`.
    pub(super) fn restored(buffers: Option<Buffers>, counters: Counters) -> Self {
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
            let left = buffers
                .map(|buffer| ops::rows_of_last_but_one(&self.in_order(buffer)?, 0, rows))?;
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
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<(Array, Array), EngineError> {
        let seen =
            if keys.dim(2) == 1 { self.replace(keys, values) } else { self.append(keys, values) }?;
        Ok((seen.keys, seen.values))
    }

    /// `_update_concat`: old rows in order, cut to the window, then the new ones.
    fn append(&mut self, keys: &Array, values: &Array) -> Result<Buffers, EngineError> {
        let buffers = match self.buffers.take() {
            None => Buffers { keys: keys.clone(), values: values.clone() },
            Some(old) => {
                let old = old.map(|buffer| self.in_order(buffer))?;
                let surplus = old.capacity() - self.max_size + 1;
                Buffers {
                    keys: self.cut(&old.keys, surplus, Some(keys))?,
                    values: self.cut(&old.values, surplus, Some(values))?,
                }
            }
        };
        self.offset += keys.dim(2);
        self.index = buffers.capacity();
        self.buffers = Some(buffers.clone());
        Ok(buffers)
    }

    /// `_update_in_place`: grow until the window is full, then overwrite the oldest row.
    fn replace(&mut self, keys: &Array, values: &Array) -> Result<Buffers, EngineError> {
        let mut buffers = self.with_room(keys, values)?;
        let surplus = buffers.capacity() - self.max_size;
        if surplus > 0 {
            buffers = buffers.map(|buffer| self.cut(buffer, surplus, None))?;
            self.index = self.max_size;
        }
        if self.index == self.max_size {
            self.index = self.keep;
        }
        ops::set_rows(&mut buffers.keys, self.index, self.index + 1, keys)?;
        ops::set_rows(&mut buffers.values, self.index, self.index + 1, values)?;
        self.offset += 1;
        self.index += 1;
        let seen = filled(&buffers, self.offset)?;
        self.buffers = Some(buffers);
        Ok(seen)
    }

    /// The buffers, longer by up to a step where they are full but shorter than the window, as they
    /// are behind a rollback past the wrap too.
    fn with_room(&mut self, keys: &Array, values: &Array) -> Result<Buffers, EngineError> {
        let filled = self.buffers.as_ref().map_or(0, Buffers::capacity);
        let fresh = |rows: &Array| {
            let shape = rows.shape();
            let positions = STEP.min(self.max_size - filled);
            ops::zeros(&[shape[0], shape[1], positions, shape[3]], rows.dtype())
        };
        let grown = match self.buffers.take() {
            None => Buffers { keys: fresh(keys)?, values: fresh(values)? },
            Some(old) if self.offset >= old.capacity() && old.capacity() < self.max_size => {
                Buffers {
                    keys: ops::concatenate(&[&old.keys, &fresh(keys)?], 2)?,
                    values: ops::concatenate(&[&old.values, &fresh(values)?], 2)?,
                }
            }
            Some(old) => return Ok(old),
        };
        self.index = filled;
        Ok(grown)
    }

    /// `_temporal_order`: oldest row first, unused rows dropped.
    pub(super) fn in_order(&self, buffer: &Array) -> Result<Array, EngineError> {
        let rows = buffer.dim(2);
        if self.index == rows {
            return Ok(buffer.clone());
        }
        if self.index >= self.offset {
            return ops::rows_of_last_but_one(buffer, 0, self.index);
        }
        let kept = ops::rows_of_last_but_one(buffer, 0, self.keep)?;
        let older = ops::rows_of_last_but_one(buffer, self.index, rows)?;
        let newer = ops::rows_of_last_but_one(buffer, self.keep, self.index)?;
        ops::concatenate(&[&kept, &older, &newer], 2)
    }

    /// `_trim`: without the `surplus` oldest rows behind the kept ones, with `extra` rows appended.
    fn cut(
        &self,
        buffer: &Array,
        surplus: i32,
        extra: Option<&Array>,
    ) -> Result<Array, EngineError> {
        let mut parts = Vec::with_capacity(3);
        if surplus > 0 {
            parts.push(ops::rows_of_last_but_one(buffer, 0, self.keep)?);
            parts.push(ops::rows_of_last_but_one(buffer, surplus + self.keep, buffer.dim(2))?);
        } else {
            parts.push(buffer.clone());
        }
        parts.extend(extra.cloned());
        ops::concatenate(&parts.iter().collect::<Vec<_>>(), 2)
    }

    /// `make_mask`: for several positions an array once the window cuts, else MLX's causal mask; for
    /// a single one nothing, unless a window shorter than the cache asks for a rotated array.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn mask(&self, count: i32, window: Option<i32>) -> Result<Mask, EngineError> {
        if count == 1 {
            return Ok(self.single_mask(window));
        }
        let window = window.unwrap_or(self.max_size);
        let offset = self.offset.min(self.max_size - 1);
        if offset + count <= window {
            return Ok(Mask::Causal);
        }
        Ok(Mask::Allowed(causal_mask(count, offset, Some(window))?))
    }

    fn single_mask(&self, window: Option<i32>) -> Mask {
        let Some(window) = window else { return Mask::Full };
        if self.offset < window || self.max_size <= window {
            return Mask::Full;
        }
        // The reference rolls `arange(rows) >= rows - window` to where the newest row will lie.
        let index = if self.index >= self.max_size { 0 } else { self.index };
        let rows = (self.offset + 1).min(self.max_size);
        let allowed: Vec<bool> =
            (0..rows).map(|row| (row - index - 1).rem_euclid(rows) >= rows - window).collect();
        Mask::Allowed(Array::from_slice(&allowed, &[rows]))
    }
}
