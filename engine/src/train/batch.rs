//! Rows of token ids as `iterate_batches` of `mlx_lm/tuner/trainer.py` lays them out.

use mlx_rs::Array;

use crate::array::read;
use crate::error::EngineError;
use crate::ops::{self, SliceAxis, refused};

/// Rows are padded to one more than a multiple of this.
const PAD_TO: usize = 32;

/// Sequences side by side, padded with zeros on the right.
#[derive(Debug, Clone)]
pub struct Rows {
    /// i32 `[rows, positions + 1]`.
    ids: Array,
    /// The first position that counts and the one behind the last, counted from 1 as mlx-lm counts targets:
    /// i32 `[rows, 2]`.
    lengths: Array,
}

impl Rows {
    /// The rows of some sequences, cut to `max_length`; of each, the first `offset` targets do not count
    /// (mlx-lm masks prompts that way).
    ///
    /// # Errors
    /// [`EngineError::Op`] for no sequence, or a cut that leaves no target.
    pub fn new(sequences: &[(&[u32], usize)], max_length: usize) -> Result<Self, EngineError> {
        let longest = sequences.iter().map(|(ids, _)| ids.len()).max().unwrap_or(0);
        let width = (1 + PAD_TO * longest.div_ceil(PAD_TO)).min(max_length);
        if width < 2 || longest == 0 {
            let found = format!("{} sequences, cut to {max_length} tokens", sequences.len());
            return Err(refused("rows", &found, "some of at least 2 tokens"));
        }
        let mut ids = vec![0_i32; sequences.len() * width];
        let mut lengths = Vec::with_capacity(2 * sequences.len());
        for ((sequence, offset), row) in sequences.iter().zip(ids.chunks_exact_mut(width)) {
            let length = sequence.len().min(max_length);
            row.iter_mut().zip(*sequence).for_each(|(to, &id)| *to = id as i32);
            lengths.extend([*offset as i32, length as i32]);
        }
        let rows = sequences.len() as i32;
        Ok(Self {
            ids: Array::from_slice(&ids, &[rows, width as i32]),
            lengths: Array::from_slice(&lengths, &[rows, 2]),
        })
    }

    /// Rows there are.
    pub fn rows(&self) -> i32 {
        self.ids.dim(0)
    }

    /// Positions the model sees of each row.
    pub fn positions(&self) -> i32 {
        self.ids.dim(1) - 1
    }

    /// Refuses ids that a model has no embedding for.
    pub(super) fn check(&self, vocab_size: usize) -> Result<(), EngineError> {
        let ids = read::<i32>("ids", &self.ids)?;
        match ids.iter().position(|&id| id as usize >= vocab_size) {
            Some(position) => {
                let id = ids[position] as u32;
                Err(EngineError::TokenOutOfRange { id, position, vocab_size })
            }
            None => Ok(()),
        }
    }

    /// What the model sees, i32 `[rows, positions]`.
    pub(super) fn inputs(&self) -> Result<Array, EngineError> {
        self.columns(&self.ids, 0, self.positions())
    }

    /// What it should say, i32 `[rows, positions]`.
    pub(super) fn targets(&self) -> Result<Array, EngineError> {
        self.columns(&self.ids, 1, self.positions() + 1)
    }

    /// Which targets count, booleans `[rows, positions]`.
    pub(super) fn mask(&self) -> Result<Array, EngineError> {
        let steps = ops::arange(1, self.positions() + 1)?;
        let first = self.columns(&self.lengths, 0, 1)?;
        let last = self.columns(&self.lengths, 1, 2)?;
        ops::logical_and(&ops::greater_equal(&steps, &first)?, &ops::less_equal(&steps, &last)?)
    }

    fn columns(&self, of: &Array, start: i32, stop: i32) -> Result<Array, EngineError> {
        ops::slice(of, &[SliceAxis::full(self.rows()), SliceAxis::range(start, stop)])
    }
}
