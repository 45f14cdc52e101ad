//! Which keys a query may attend to: the one rule behind every mask of the caches.
//!
//! Masks are filled in on the host, row by row, and equal those of `create_causal_mask` of
//! `mlx_lm/models/base.py` and of the caches' `make_mask`, which compare positions on the device.

use mlx_rs::{Array, Dtype};

use crate::error::EngineError;
use crate::ops;

/// The newest `queries` of `keys` rows attend to the rows up to their own; rows stand in temporal order.
///
/// Under a window of `w` a query sees `w` rows, its own included; the first `keep` rows of the sequence
/// are among them whatever their age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskRule {
    queries: i32,
    keys: i32,
    window: Option<i32>,
    keep: i32,
}

/// What a query does that may attend to nothing, because its own row is padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadRows {
    /// It attends to nothing, as in the reference. MLX answers with the mean of all values under a
    /// boolean mask and with NaN under an added one.
    Nothing,
    /// It attends to its own row, so that what it answers is finite and owes nothing to other rows.
    Itself,
}

impl MaskRule {
    /// The causal rule: the last query is that of the last key.
    ///
    /// # Errors
    /// [`EngineError::MaskRule`] for no queries, or fewer keys than queries.
    pub fn causal(queries: i32, keys: i32) -> Result<Self, EngineError> {
        within("queries", queries, 1..=keys)?;
        Ok(Self { queries, keys, window: None, keep: 0 })
    }

    /// The same rule under a window that has the first `keep` rows always in it.
    ///
    /// # Errors
    /// [`EngineError::MaskRule`] for a window of nothing, or one that is kept whole.
    pub fn within_window(self, window: i32, keep: i32) -> Result<Self, EngineError> {
        within("window", window, 1..=i32::MAX)?;
        within("keep", keep, 0..=window - 1)?;
        Ok(Self { window: Some(window), keep, ..self })
    }

    /// The mask as a boolean array `[queries, keys]`, true where a query may attend to a key.
    pub fn allowed(&self) -> Array {
        let cells = self.cells(0, DeadRows::Nothing);
        Array::from_slice(&cells, &[self.queries, self.keys])
    }

    /// The masks of several sequences, `[sequences, 1, queries, keys]`, whose first rows are padding: so
    /// many as `padding` says, below zero none. A padded row is seen by no query but, under
    /// [`DeadRows::Itself`], its own.
    pub fn padded(&self, padding: &[i32], dead: DeadRows) -> Array {
        let cells: Vec<bool> =
            padding.iter().flat_map(|&padding| self.cells(padding, dead)).collect();
        Array::from_slice(&cells, &[padding.len() as i32, 1, self.queries, self.keys])
    }

    /// The mask of the last query alone, `[keys]`, over rows that a cache has rotated: the newest one
    /// lies at `newest`, the kept ones at the front.
    pub fn rotated(&self, newest: i32) -> Array {
        let last = self.cells_of(self.queries - 1, 0, DeadRows::Nothing);
        let keep = self.keep.min(self.keys - 1);
        let turning = self.keys - keep;
        let mut cells = last.clone();
        for (age, &may) in last.iter().skip(keep as usize).rev().enumerate() {
            cells[(keep + (newest - keep - age as i32).rem_euclid(turning)) as usize] = may;
        }
        Array::from_slice(&cells, &[self.keys])
    }

    fn cells(&self, padding: i32, dead: DeadRows) -> Vec<bool> {
        (0..self.queries).flat_map(|query| self.cells_of(query, padding, dead)).collect()
    }

    fn cells_of(&self, query: i32, padding: i32, dead: DeadRows) -> Vec<bool> {
        let padding = padding.clamp(0, self.keys);
        let own = self.keys - self.queries + query;
        let oldest = self.window.map_or(0, |window| own.saturating_sub(window - self.keep) + 1);
        let kept = padding..(padding + self.keep).min(own + 1);
        let mut cells = vec![false; self.keys as usize];
        for run in [oldest.max(padding)..own + 1, kept] {
            if run.start < run.end {
                cells[run.start as usize..run.end as usize].fill(true);
            }
        }
        if own < padding && dead == DeadRows::Itself {
            cells[own as usize] = true;
        }
        cells
    }
}

/// A boolean mask as one that is added to scores of a dtype: zero where it holds, else minus infinity.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn added(allowed: &Array, dtype: Dtype) -> Result<Array, EngineError> {
    let zero = ops::scalar(0.0, dtype)?;
    ops::select(allowed, &zero, &ops::scalar(f64::NEG_INFINITY, dtype)?)
}

/// `create_causal_mask`: `[count, offset + count]` for queries behind `offset` rows.
///
/// # Errors
/// [`EngineError::MaskRule`] for no queries, a negative offset or a window of nothing.
pub fn causal_mask(count: i32, offset: i32, window: Option<i32>) -> Result<Array, EngineError> {
    let rule = MaskRule::causal(count, offset + count)?;
    let rule = window.map_or(Ok(rule), |window| rule.within_window(window, 0))?;
    Ok(rule.allowed())
}

fn within(
    what: &'static str,
    found: i32,
    wanted: std::ops::RangeInclusive<i32>,
) -> Result<(), EngineError> {
    if wanted.contains(&found) {
        return Ok(());
    }
    let (least, most) = wanted.into_inner();
    Err(EngineError::MaskRule { what, found, least, most })
}
