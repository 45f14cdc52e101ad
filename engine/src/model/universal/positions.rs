//! Learned positions: `GPT2Model` of `mlx_lm/models/gpt2.py`.

use mlx_rs::Array;

use super::spec::Spec;
use crate::cache::KvCache;
use crate::error::EngineError;
use crate::nn::Embedding;
use crate::ops;
use crate::weights::Weights;

/// A table with a row for each position.
pub(super) struct Positions {
    table: Embedding,
    rows: usize,
}

impl Positions {
    /// The table that a descriptor names, if it does.
    pub(super) fn load(spec: &Spec, weights: &mut Weights) -> Result<Option<Self>, EngineError> {
        let (Some(path), Some(rows)) = (spec.positions, spec.dims.max_positions) else {
            return Ok(None);
        };
        let table = weights.embedding(path, [rows, spec.dims.hidden_size])?;
        Ok(Some(Self { table, rows }))
    }

    /// Positions there are.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The rows of `count` positions from where a cache stands: `[count, hidden]`, or `[sequences, count,
    /// hidden]` where its sequences differ in length; those of padding are of no account.
    ///
    /// # Errors
    /// [`EngineError::Op`] for a position past the table, and where MLX throws.
    pub(super) fn take(&self, cache: &KvCache, count: i32) -> Result<Array, EngineError> {
        let last = cache.offsets().map_or(cache.offset(), |all| all.into_iter().max().unwrap_or(0));
        let end = i64::from(last) + i64::from(count);
        if usize::try_from(end).is_ok_and(|end| end > self.rows) {
            let wanted = format!("at most {}, the rows of its table", self.rows);
            return Err(ops::refused("position embedding", &format!("{end} positions"), &wanted));
        }
        let positions = positions(cache, count)?;
        self.table.forward(&positions)
    }
}

/// `count` positions from where a cache stands, i32 `[count]`, or `[sequences, count]` where its sequences
/// differ in length; in padding they are 0.
pub(super) fn positions(cache: &KvCache, count: i32) -> Result<Array, EngineError> {
    let steps = ops::arange(0, count)?;
    if cache.offsets().is_none() {
        return ops::add(&steps, &Array::from_int(cache.offset()));
    }
    let offsets = ops::expand_dims(&cache.position_array(), 1)?;
    ops::maximum(&ops::add(&steps, &offsets)?, &Array::from_int(0))
}
