//! The float64 forward of the model, computed once for each prompt.

use std::{collections::HashMap, path::Path};

use mlx_parity_oracles::{OracleError, models::Model64};

/// A model in float64, opened when it is first asked.
pub(super) struct Truth<'a> {
    dir: &'a Path,
    model: Option<Model64>,
    known: HashMap<Vec<u32>, Vec<f64>>,
}

impl<'a> Truth<'a> {
    pub(super) fn new(dir: &'a Path) -> Self {
        Self { dir, model: None, known: HashMap::new() }
    }

    /// Logits of `ids` from position `start` on, row-major.
    pub(super) fn logits(&mut self, ids: &[u32], start: usize) -> Result<Vec<f64>, OracleError> {
        let model = match self.model.take() {
            Some(model) => model,
            None => Model64::open(self.dir)?,
        };
        let model = self.model.insert(model);
        let skipped = start * model.vocab_size();
        if let Some(logits) = self.known.get(ids) {
            return Ok(logits[skipped..].to_vec());
        }
        let logits = model.forward(ids)?.into_data();
        let rest = logits[skipped..].to_vec();
        self.known.insert(ids.to_vec(), logits);
        Ok(rest)
    }
}
