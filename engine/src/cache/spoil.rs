//! What deliberate faults do to caches.

use mlx_rs::Array;

use super::{Buffers, KvCache, Part, RecurrentCache, RecurrentState, RotatingCache};
use crate::error::{EngineError, op};
use crate::ops;
use crate::ops::packed::Packed;

impl KvCache {
    /// A window one position narrower, of a cache that is still empty.
    pub(crate) fn narrow(&mut self) {
        if let Self::Rotating(cache) = self {
            let counters = cache.counters();
            *cache = RotatingCache::new(counters.max_size - 1, counters.keep);
        }
    }

    /// A wrapped window that takes the slot behind the newest one for the newest.
    pub(crate) fn turn(&mut self) {
        let Self::Rotating(cache) = self else { return };
        let mut counters = cache.counters();
        if counters.offset >= counters.max_size {
            counters.index = counters.index % counters.max_size + 1;
            *cache = RotatingCache::restored(cache.buffers().cloned(), counters);
        }
    }

    /// A recurrent state of zeros that has seen as much.
    pub(crate) fn blank(&mut self) -> Result<(), EngineError> {
        let Self::Recurrent(cache) = self else { return Ok(()) };
        let Some(state) = cache.state() else { return Ok(()) };
        let zeros = |array: &Array| ops::zeros(array.shape(), array.dtype());
        let state = RecurrentState { conv: zeros(&state.conv)?, memory: zeros(&state.memory)? };
        *cache = RecurrentCache::restored(cache.form(), state, cache.offset());
        Ok(())
    }

    /// The sequences of a batch in the opposite order.
    pub(crate) fn reverse(&mut self) -> Result<(), EngineError> {
        let turned = |array: &Array| {
            let order: Vec<i32> = (0..array.dim(0)).rev().collect();
            ops::take(array, &Array::from_slice(&order, &[array.dim(0)]), 0)
        };
        match self {
            Self::Plain(cache) => each(cache.buffers_mut(), turned),
            Self::Rotating(cache) => each(cache.buffers_mut(), turned),
            Self::Quantized(cache) => each(cache.rows_mut().buffers_mut(), turned),
            Self::RotatingQuantized(cache) => each(cache.rows_mut().buffers_mut(), turned),
            Self::Recurrent(cache) => {
                let Some(state) = cache.state() else { return Ok(()) };
                let state =
                    RecurrentState { conv: turned(&state.conv)?, memory: turned(&state.memory)? };
                *cache = RecurrentCache::restored(cache.form(), state, cache.offset());
                Ok(())
            }
            Self::Padded(_) | Self::PaddedRotating(_) => Ok(()),
        }
    }

    /// The values of a position are those of the one before it, where the newest `count` positions of a
    /// cache of plain rows hold it.
    pub(crate) fn repeat_value(&mut self, position: i32, count: i32) -> Result<(), EngineError> {
        let newest = self.offset() - count..self.offset();
        let buffers = match self {
            Self::Plain(cache) => cache.buffers_mut(),
            Self::Rotating(cache) => cache.buffers_mut(),
            _ => None,
        };
        let Some(buffers) = buffers.filter(|_| newest.contains(&position)) else { return Ok(()) };
        let positions = 0..buffers.values.dim(2);
        let order: Vec<i32> = positions.map(|at| at - i32::from(at == position)).collect();
        let order = Array::from_slice(&order, &[order.len() as i32]);
        buffers.values = ops::take(&buffers.values, &order, 2)?;
        Ok(())
    }

    /// A batch without padding: all rows count.
    pub(crate) fn forget_padding(&mut self) {
        match self {
            Self::Padded(cache) => cache.padding_mut().fill(0),
            Self::PaddedRotating(cache) => cache.forget_padding(),
            _ => {}
        }
    }

    /// Packed keys whose scales are those of the group before, or of the position before where a head is
    /// one group.
    pub(crate) fn shift_scales(&mut self) -> Result<(), EngineError> {
        let buffers = match self {
            Self::Quantized(cache) => cache.rows_mut().buffers_mut(),
            Self::RotatingQuantized(cache) => cache.rows_mut().buffers_mut(),
            _ => None,
        };
        let Some(Buffers { keys: Packed { scales, .. }, .. }) = buffers else { return Ok(()) };
        let axis = if scales.dim(3) > 1 { 3 } else { 2 };
        let order: Vec<i32> = (0..scales.dim(axis)).map(|at| (at - 1).max(0)).collect();
        let order = Array::from_slice(&order, &[order.len() as i32]);
        *scales = op("take", scales.take_axis(&order, axis))?;
        Ok(())
    }
}

fn each<T: Part>(
    buffers: Option<&mut Buffers<T>>,
    step: impl Fn(&Array) -> Result<Array, EngineError>,
) -> Result<(), EngineError> {
    if let Some(buffers) = buffers {
        *buffers = buffers.map(|part| part.each(&step))?;
    }
    Ok(())
}
