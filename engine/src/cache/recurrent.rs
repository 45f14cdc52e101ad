//! `ArraysCache(size=2)` of `mlx_lm/models/cache.py`: what a recurrent layer knows of the past.
//!
//! It holds no positions, only what they add up to, so the newest ones cannot be taken back.

use mlx_rs::Array;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::fault;

/// The extents of a recurrent layer's two arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentForm {
    /// Earlier inputs the convolution sees: its taps less one.
    pub inputs: i32,
    /// Channels of the convolution.
    pub channels: i32,
    /// Heads of the memory.
    pub heads: i32,
    /// Width of a value.
    pub value_dim: i32,
    /// Width of a key.
    pub key_dim: i32,
}

/// The cache of one recurrent layer.
#[derive(Debug, Clone)]
pub struct RecurrentCache {
    form: RecurrentForm,
    state: Option<RecurrentState>,
    seen: i32,
}

/// What a recurrent layer hands from one call to the next.
#[derive(Debug, Clone)]
pub struct RecurrentState {
    /// The newest inputs of the convolution, `[batch, inputs, channels]`, in the model's dtype.
    pub conv: Array,
    /// The memory, `[batch, heads, value_dim, key_dim]`, f32.
    pub memory: Array,
}

impl RecurrentCache {
    /// An empty cache.
    pub fn new(form: RecurrentForm) -> Self {
        Self { form, state: None, seen: 0 }
    }

    /// The cache that held `state` and had seen `seen` positions.
    pub(super) fn restored(form: RecurrentForm, state: RecurrentState, seen: i32) -> Self {
        Self { form, state: Some(state), seen }
    }

    /// Extents.
    pub fn form(&self) -> RecurrentForm {
        self.form
    }

    /// Tokens seen so far.
    pub fn offset(&self) -> i32 {
        self.seen
    }

    /// Bytes of one sequence's arrays, where a value of the convolution takes `size`.
    pub(crate) fn bytes(&self, size: usize) -> usize {
        let RecurrentForm { inputs, channels, heads, value_dim, key_dim } = self.form;
        (inputs * channels) as usize * size + (heads * value_dim * key_dim) as usize * 4
    }

    /// What the last call left; none before the first.
    pub fn state(&self) -> Option<&RecurrentState> {
        self.state.as_ref()
    }

    /// Puts what a call over `count` positions left in the place of what the last one left.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for arrays of other extents than the cache's own.
    pub fn advance(&mut self, state: RecurrentState, count: i32) -> Result<(), EngineError> {
        let RecurrentForm { inputs, channels, heads, value_dim, key_dim } = self.form;
        let batch = state.conv.dim(0);
        let wanted: [&[i32]; 2] = [&[batch, inputs, channels], &[batch, heads, value_dim, key_dim]];
        let found = [state.conv.shape(), state.memory.shape()];
        if found != wanted {
            return Err(EngineError::CacheForm {
                found: format!("{found:?}"),
                wanted: format!("{wanted:?}"),
            });
        }
        fault::point(|| "before a cache update".to_owned())?;
        self.state = Some(state);
        self.seen += count;
        fault::point(|| "behind a cache update".to_owned())
    }
}
