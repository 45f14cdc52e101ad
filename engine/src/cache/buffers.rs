//! What caches of keys and values are made of: rows, plain or packed.

use mlx_rs::{Array, Dtype};

use crate::error::EngineError;
use crate::ops;
use crate::ops::packed::{self, Mode, Packed};

/// Keys or values of one layer, `[batch, kv_heads, positions, head_dim]`, in one array or packed.
pub trait Part: Clone + std::fmt::Debug {
    /// Positions there is room for.
    fn positions(&self) -> i32;

    /// Sequences side by side.
    fn batch(&self) -> i32;

    /// Applies one step to each array.
    ///
    /// # Errors
    /// What the step returns.
    fn each(
        &self,
        step: impl Fn(&Array) -> Result<Array, EngineError>,
    ) -> Result<Self, EngineError>;

    /// Zeros like these, with room for `positions`; packed ones with the scales' dtype of `like`.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    fn blank(&self, positions: i32, like: &Self) -> Result<Self, EngineError>;

    /// The positions of all `parts`, one behind the other.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    fn join(parts: &[&Self]) -> Result<Self, EngineError>;

    /// Puts `rows` in the place of the positions from `start` to before `stop`.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    fn write(&mut self, start: i32, stop: i32, rows: &Self) -> Result<(), EngineError>;
}

impl Part for Array {
    fn positions(&self) -> i32 {
        self.dim(2)
    }

    fn batch(&self) -> i32 {
        self.dim(0)
    }

    fn each(
        &self,
        step: impl Fn(&Array) -> Result<Array, EngineError>,
    ) -> Result<Self, EngineError> {
        step(self)
    }

    fn blank(&self, positions: i32, _: &Self) -> Result<Self, EngineError> {
        zeros(self, positions, self.dtype())
    }

    fn join(parts: &[&Self]) -> Result<Self, EngineError> {
        ops::concatenate(parts, 2)
    }

    fn write(&mut self, start: i32, stop: i32, rows: &Self) -> Result<(), EngineError> {
        ops::set_rows(self, start, stop, rows)
    }
}

impl Part for Packed {
    fn positions(&self) -> i32 {
        self.words.dim(2)
    }

    fn batch(&self) -> i32 {
        self.words.dim(0)
    }

    fn each(
        &self,
        step: impl Fn(&Array) -> Result<Array, EngineError>,
    ) -> Result<Self, EngineError> {
        self.map(step)
    }

    fn blank(&self, positions: i32, like: &Self) -> Result<Self, EngineError> {
        let floats = |rows: &Array| zeros(rows, positions, like.scales.dtype());
        Ok(Self {
            words: zeros(&self.words, positions, self.words.dtype())?,
            scales: floats(&self.scales)?,
            biases: self.biases.as_ref().map(floats).transpose()?,
            mode: self.mode,
        })
    }

    fn join(parts: &[&Self]) -> Result<Self, EngineError> {
        let joined = |part: fn(&Packed) -> &Array| {
            ops::concatenate(&parts.iter().map(|packed| part(packed)).collect::<Vec<_>>(), 2)
        };
        let [first, ..] = parts else { return Err(ops::refused("concatenate", "none", "some")) };
        let biases: Option<Vec<&Array>> = parts.iter().map(|part| part.biases.as_ref()).collect();
        Ok(Self {
            words: joined(|packed| &packed.words)?,
            scales: joined(|packed| &packed.scales)?,
            biases: biases.map(|biases| ops::concatenate(&biases, 2)).transpose()?,
            mode: first.mode,
        })
    }

    fn write(&mut self, start: i32, stop: i32, rows: &Self) -> Result<(), EngineError> {
        ops::set_rows(&mut self.words, start, stop, &rows.words)?;
        ops::set_rows(&mut self.scales, start, stop, &rows.scales)?;
        if let (Some(biases), Some(rows)) = (&mut self.biases, &rows.biases) {
            ops::set_rows(biases, start, stop, rows)?;
        }
        Ok(())
    }
}

/// The two buffers of one layer.
#[derive(Debug, Clone)]
pub(crate) struct Buffers<T = Array> {
    pub(crate) keys: T,
    pub(crate) values: T,
}

impl<T: Part> Buffers<T> {
    /// Applies one step to both buffers.
    pub(crate) fn map(
        &self,
        step: impl Fn(&T) -> Result<T, EngineError>,
    ) -> Result<Self, EngineError> {
        Ok(Self { keys: step(&self.keys)?, values: step(&self.values)? })
    }

    /// Positions the buffers have room for.
    pub(crate) fn capacity(&self) -> i32 {
        self.keys.positions()
    }

    /// Room for `positions` rows like these. `QuantizedKVCache` of `mlx_lm/models/cache.py` makes room for
    /// packed values with scales in the dtype of the keys, which an adapter can make another one.
    pub(super) fn blank(&self, positions: i32) -> Result<Self, EngineError> {
        Ok(Self {
            keys: self.keys.blank(positions, &self.keys)?,
            values: self.values.blank(positions, &self.keys)?,
        })
    }

    /// Room for `positions` rows like these, keys and values each in their own dtype.
    pub(super) fn more(&self, positions: i32) -> Result<Self, EngineError> {
        self.map(|part| part.blank(positions, part))
    }

    /// These, and `behind` behind them.
    pub(super) fn join(&self, behind: &Self) -> Result<Self, EngineError> {
        Ok(Self {
            keys: T::join(&[&self.keys, &behind.keys])?,
            values: T::join(&[&self.values, &behind.values])?,
        })
    }

    /// Puts `rows` in the place of the positions from `start` to before `stop`.
    pub(super) fn write(&mut self, start: i32, stop: i32, rows: &Self) -> Result<(), EngineError> {
        self.keys.write(start, stop, &rows.keys)?;
        self.values.write(start, stop, &rows.values)
    }

    /// The first `rows` positions; the buffers themselves where they hold no more.
    pub(super) fn filled(&self, rows: i32) -> Result<Self, EngineError> {
        if rows < self.capacity() {
            self.map(|part| range(part, 0, rows))
        } else {
            Ok(self.clone())
        }
    }
}

impl Buffers {
    /// Both, packed along their last axis.
    pub(super) fn packed(&self, mode: Mode) -> Result<Buffers<Packed>, EngineError> {
        Ok(Buffers {
            keys: packed::quantize(&self.keys, mode, None)?,
            values: packed::quantize(&self.values, mode, None)?,
        })
    }
}

fn zeros(rows: &Array, positions: i32, dtype: Dtype) -> Result<Array, EngineError> {
    let shape = rows.shape();
    ops::zeros(&[shape[0], shape[1], positions, shape[3]], dtype)
}

/// The positions from `start` to before `stop`.
pub(super) fn range<T: Part>(part: &T, start: i32, stop: i32) -> Result<T, EngineError> {
    part.each(|rows| ops::rows_of_last_but_one(rows, start, stop))
}
