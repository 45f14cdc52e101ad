//! NaN where no later token may look, to see that none does.

use mlx_rs::Array;

use super::{Buffers, KvCache, RotatingCache};
use crate::error::{EngineError, op};
use crate::ops;

impl KvCache {
    /// Fills every slot that no later position may attend to with NaN: those that are not in use yet, or
    /// again after a trim, and those that a window has left behind. A recurrent layer has none.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn poison_unused(&mut self) -> Result<(), EngineError> {
        match self {
            Self::Plain(cache) => {
                let unused = cache.offset()..i32::MAX;
                cache.buffers_mut().map_or(Ok(()), |buffers| poison(buffers, &[unused]))
            }
            Self::Rotating(cache) => {
                let unused = out_of_sight(cache);
                cache.buffers_mut().map_or(Ok(()), |buffers| poison(buffers, &unused))
            }
            Self::Recurrent(_) => Ok(()),
        }
    }
}

/// The slots that a window has left behind, and those that were never filled.
fn out_of_sight(cache: &RotatingCache) -> [std::ops::Range<i32>; 2] {
    let super::rotating::Counters { offset, index, max_size, keep } = cache.counters();
    let rows = cache.buffers().map_or(0, Buffers::capacity);
    if offset < max_size {
        return [index..rows, 0..0];
    }
    // The next position sees as many of the newest rows as the window has behind the kept ones, less
    // its own.
    let seen = max_size - keep - 1;
    if index == rows {
        return [keep..rows - seen, 0..0];
    }
    // One after the other from `index` on, the oldest first.
    let forgotten = rows - keep - seen;
    let turned = (index + forgotten - rows).max(0);
    [index..(index + forgotten).min(rows), keep..keep + turned]
}

fn poison(buffers: &mut Buffers, slots: &[std::ops::Range<i32>]) -> Result<(), EngineError> {
    for slots in slots {
        let stop = slots.end.min(buffers.capacity());
        if slots.start < stop {
            nan(&mut buffers.keys, slots.start, stop)?;
            nan(&mut buffers.values, slots.start, stop)?;
        }
    }
    Ok(())
}

fn nan(buffer: &mut Array, start: i32, stop: i32) -> Result<(), EngineError> {
    let nan = ops::scalar(f64::NAN, buffer.dtype())?;
    let shape = [buffer.dim(0), buffer.dim(1), stop - start, buffer.dim(3)];
    let rows = op("broadcast_to", mlx_rs::ops::broadcast_to(&nan, &shape))?;
    ops::set_rows(buffer, start, stop, &rows)
}
