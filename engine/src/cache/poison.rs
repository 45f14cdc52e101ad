//! NaN where no later token may look, to see that none does.

use std::ops::Range;

use mlx_rs::{Array, Dtype};

use super::{Buffers, KvCache, Part, PlainCache, RotatingCache};
use crate::error::{EngineError, op};
use crate::ops;

impl KvCache {
    /// Fills every slot that no later position may attend to with NaN: those that are not in use yet, or
    /// again after a trim, and those that a window has left behind. Of packed slots the scales become
    /// NaN. A recurrent layer has none.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for padded sequences, [`EngineError::Op`] where MLX throws.
    pub fn poison_unused(&mut self) -> Result<(), EngineError> {
        match self {
            Self::Plain(cache) => behind(cache),
            Self::Quantized(cache) => behind(cache.rows_mut()),
            Self::Rotating(cache) => out_of_sight(cache),
            Self::RotatingQuantized(cache) => out_of_sight(cache.rows_mut()),
            Self::Recurrent(_) => Ok(()),
            Self::Padded(_) | Self::PaddedRotating(_) => Err(EngineError::CacheForm {
                found: "padded sequences".to_owned(),
                wanted: "sequences of one length".to_owned(),
            }),
        }
    }
}

fn behind<T: Part>(cache: &mut PlainCache<T>) -> Result<(), EngineError> {
    let unused = cache.offset()..i32::MAX;
    cache.buffers_mut().map_or(Ok(()), |buffers| poison(buffers, unused))
}

/// The slots that a window has left behind, and those that were never filled.
fn out_of_sight<T: Part>(cache: &mut RotatingCache<T>) -> Result<(), EngineError> {
    let super::rotating::Counters { offset, index, max_size, keep } = cache.counters();
    let Some(buffers) = cache.buffers_mut() else { return Ok(()) };
    let rows = buffers.capacity();
    if offset < max_size {
        return poison(buffers, index..rows);
    }
    // The next position sees as many of the newest rows as the window has behind the kept ones, less
    // its own; the oldest row lies at `index`, behind the kept ones where that is the end.
    let forgotten = rows - keep - (max_size - keep - 1);
    let oldest = if index == rows { keep } else { index };
    poison(buffers, oldest..oldest + forgotten)?;
    poison(buffers, keep..keep + (oldest + forgotten - rows).max(0))
}

fn poison<T: Part>(buffers: &mut Buffers<T>, slots: Range<i32>) -> Result<(), EngineError> {
    let stop = slots.end.min(buffers.capacity());
    if slots.start >= stop {
        return Ok(());
    }
    let nan = buffers.map(|part| part.each(|rows| nan(rows, stop - slots.start)))?;
    buffers.write(slots.start, stop, &nan)
}

/// Rows of NaN, or of the highest code where they hold codes.
fn nan(rows: &Array, count: i32) -> Result<Array, EngineError> {
    let value = match rows.dtype() {
        Dtype::Uint32 => Array::from_slice(&[u32::MAX], &[1]),
        dtype => ops::scalar(f64::NAN, dtype)?,
    };
    let shape = [rows.dim(0), rows.dim(1), count, rows.dim(3)];
    op("broadcast_to", mlx_rs::ops::broadcast_to(&value, &shape))
}
