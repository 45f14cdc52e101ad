//! `ArraysCache(size=2)` of `mlx_lm/models/cache.py`: what a recurrent layer knows of the past.
//!
//! It holds no positions, only what they add up to, so the newest ones cannot be taken back.

use mlx_rs::Array;
use serde::{Deserialize, Serialize};

use super::rows::pick;
use crate::error::EngineError;
use crate::fault;
use crate::ops;

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
    /// Of each sequence, or of all alike.
    seen: Vec<i32>,
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
        Self { form, state: None, seen: vec![0] }
    }

    /// The cache that held `state` and had seen `seen` positions.
    pub(super) fn restored(form: RecurrentForm, state: RecurrentState, seen: i32) -> Self {
        Self { form, state: Some(state), seen: vec![seen] }
    }

    /// Extents.
    pub fn form(&self) -> RecurrentForm {
        self.form
    }

    /// Tokens seen so far, of the longest sequence.
    pub fn offset(&self) -> i32 {
        self.seen.iter().copied().max().unwrap_or(0)
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
        self.seen.iter_mut().for_each(|seen| *seen += count);
        fault::point(|| "behind a cache update".to_owned())
    }

    /// Applies one step to both arrays.
    fn map(
        &self,
        step: impl Fn(&Array) -> Result<Array, EngineError>,
    ) -> Result<Self, EngineError> {
        let mapped = |state: &RecurrentState| {
            let (conv, memory) = (step(&state.conv)?, step(&state.memory)?);
            Ok::<_, EngineError>(RecurrentState { conv, memory })
        };
        let state = self.state.as_ref().map(mapped).transpose()?;
        Ok(Self { state, ..self.clone() })
    }

    /// `filter`: the sequences at the given places alone.
    pub(super) fn filter(&mut self, keep: &[usize]) -> Result<(), EngineError> {
        let seen = keep.iter().map(|&at| self.seen[at]).collect();
        *self = Self { seen, ..self.map(|array| pick(array, keep))? };
        Ok(())
    }

    /// `extract`: the sequence at a place, alone.
    pub(super) fn extract(&self, at: usize) -> Result<Self, EngineError> {
        let alone = self.map(|array| pick(array, &[at]))?;
        Ok(Self { seen: vec![self.seen[at]], ..alone })
    }

    /// `extend`: other sequences behind these; a state that is not there yet is zero.
    pub(super) fn extend(&mut self, other: &Self) -> Result<(), EngineError> {
        let like = self.state.as_ref().or(other.state.as_ref());
        if let Some(RecurrentState { conv, memory }) = like {
            let side = |cache: &Self, of: fn(&RecurrentState) -> &Array, like: &Array| {
                if let Some(state) = &cache.state {
                    return Ok(of(state).clone());
                }
                let mut shape = like.shape().to_vec();
                shape[0] = cache.seen.len() as i32;
                ops::zeros(&shape, like.dtype())
            };
            let both = |of: fn(&RecurrentState) -> &Array, like: &Array| {
                ops::concatenate(&[&side(self, of, like)?, &side(other, of, like)?], 0)
            };
            let conv = both(|state| &state.conv, conv)?;
            let memory = both(|state| &state.memory, memory)?;
            self.state = Some(RecurrentState { conv, memory });
        }
        self.seen.extend(&other.seen);
        Ok(())
    }
}
