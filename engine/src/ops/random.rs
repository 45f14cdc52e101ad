//! Random values from explicit keys: the same key gives the same bits.
//!
//! By mlx-c directly: the random module of mlx-rs links against a clock that only Apple's systems have.

use mlx_rs::{Array, Dtype};

use super::{SliceAxis, raw, slice, squeeze};
use crate::error::EngineError;

/// The keys that `mx.random` draws with after `mx.random.seed`, in order.
#[derive(Debug, Clone)]
pub struct Keys {
    state: Array,
}

impl Keys {
    /// The sequence of a seed.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn seeded(seed: u64) -> Result<Self, EngineError> {
        let state = raw::array("random.key", |result, _| {
            // SAFETY: fills one array handle.
            unsafe { mlx_sys::mlx_random_key(result, seed) }
        })?;
        Ok(Self { state })
    }

    /// The next key: the second row of the split state, whose first row stays behind.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn draw(&mut self) -> Result<Array, EngineError> {
        let keys = raw::array("random.split", |result, stream| {
            // SAFETY: the state outlives the call.
            unsafe { mlx_sys::mlx_random_split_num(result, self.state.as_ptr(), 2, stream) }
        })?;
        let row = |at| {
            let axes = [SliceAxis::range(at, at + 1), SliceAxis::full(keys.dim(1))];
            squeeze(&slice(&keys, &axes)?, 0)
        };
        self.state = row(0)?;
        row(1)
    }
}

/// `mx.random.randint`: i32 values from `low` up to but not including `high`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn randint(low: i32, high: i32, shape: &[i32], key: &Array) -> Result<Array, EngineError> {
    let (low, high) = (Array::from_int(low), Array::from_int(high));
    raw::array("random.randint", |result, stream| {
        // SAFETY: the arrays outlive the call, and the shape comes with its length.
        unsafe {
            mlx_sys::mlx_random_randint(
                result,
                low.as_ptr(),
                high.as_ptr(),
                shape.as_ptr(),
                shape.len(),
                Dtype::Int32.into(),
                key.as_ptr(),
                stream,
            )
        }
    })
}

/// `mx.random.uniform`: f32 values from `-bound` up to but not including `bound`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub(crate) fn uniform(bound: f32, shape: &[i32], key: &Array) -> Result<Array, EngineError> {
    let (low, high) = (Array::from_f32(-bound), Array::from_f32(bound));
    raw::array("random.uniform", |result, stream| {
        // SAFETY: the arrays outlive the call, and the shape comes with its length.
        unsafe {
            mlx_sys::mlx_random_uniform(
                result,
                low.as_ptr(),
                high.as_ptr(),
                shape.as_ptr(),
                shape.len(),
                Dtype::Float32.into(),
                key.as_ptr(),
                stream,
            )
        }
    })
}

/// Random bits, u32, of a key.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub(crate) fn random_bits(shape: &[i32], key: &Array) -> Result<Array, EngineError> {
    raw::array("random.bits", |result, stream| {
        // SAFETY: the key outlives the call, and the shape comes with its length.
        unsafe {
            mlx_sys::mlx_random_bits(result, shape.as_ptr(), shape.len(), 4, key.as_ptr(), stream)
        }
    })
}

/// `mx.random.categorical` over the last axis: u32 positions, drawn by unnormalised log probabilities.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn categorical(logits: &Array, key: &Array) -> Result<Array, EngineError> {
    raw::array("random.categorical", |result, stream| {
        // SAFETY: both arrays outlive the call.
        unsafe {
            mlx_sys::mlx_random_categorical(result, logits.as_ptr(), -1, key.as_ptr(), stream)
        }
    })
}
