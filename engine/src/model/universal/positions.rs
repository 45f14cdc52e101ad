//! Learned positions: `GPT2Model` of `mlx_lm/models/gpt2.py`.

use mlx_rs::Array;

use super::spec::Spec;
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

    /// The rows `[count, hidden]` of the positions from `offset` on.
    ///
    /// # Errors
    /// [`EngineError::Op`] for a position past the table, and where MLX throws.
    pub(super) fn take(&self, offset: i32, count: i32) -> Result<Array, EngineError> {
        let end = i64::from(offset) + i64::from(count);
        if usize::try_from(end).is_ok_and(|end| end > self.rows) {
            let wanted = format!("at most {}, the rows of its table", self.rows);
            return Err(ops::refused("position embedding", &format!("{end} positions"), &wanted));
        }
        let positions = ops::add(&ops::arange(0, count)?, &Array::from_int(offset))?;
        self.table.forward(&positions)
    }
}
