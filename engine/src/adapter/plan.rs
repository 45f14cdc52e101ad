//! Which residual goes to which layer (`linear_to_lora_layers` of `mlx_lm/tuner/utils.py`).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use mlx_rs::Array;

use super::Adapter;
use crate::composition::Lora;
use crate::error::EngineError;
use crate::nn::{Residual, Slot};
use crate::train::Planned;

/// The block of a module path and the path within it: `model.layers.3.self_attn.q_proj` is
/// `self_attn.q_proj` of block 3.
fn within_block(path: &str) -> Option<(usize, &str)> {
    let mut rest = path;
    while let Some((part, inner)) = rest.split_once('.') {
        if let Ok(block) = part.parse() {
            return Some((block, inner));
        }
        rest = inner;
    }
    None
}

impl Adapter {
    /// The residual of every layer that the adapter changes, for a model of `blocks` blocks; `lora` says
    /// at each call what becomes of it.
    ///
    /// # Errors
    /// [`EngineError::UnsupportedConfig`] for a key that names no linear layer;
    /// [`EngineError::WeightAudit`] with the names of all tensors that are missing, of no layer the
    /// config names, or of another shape or dtype than it needs.
    pub(crate) fn plan(
        &self,
        linears: &BTreeMap<String, Slot>,
        blocks: usize,
        lora: &Rc<Cell<Lora>>,
    ) -> Result<Vec<Planned>, EngineError> {
        self.check_keys(linears)?;
        let mut unread: BTreeSet<&str> = self.tensors.keys().map(String::as_str).collect();
        let (mut missing, mut unfit) = (Vec::new(), self.unfit.clone());
        let mut planned = Vec::new();
        for (path, slot) in linears.iter().filter(|(path, _)| self.targets(path, blocks)) {
            let [outputs, inputs] = slot.shape();
            let rank = self.config.rank as i32;
            let mut take = |part: &str, shape: [i32; 2]| -> Option<Array> {
                let name = format!("{path}.{part}");
                unread.remove(name.as_str());
                let Some(found) = self.tensors.get(&name) else {
                    if !unfit.iter().any(|entry| entry.starts_with(&name)) {
                        missing.push(name);
                    }
                    return None;
                };
                if found.shape() != shape {
                    unfit.push(format!("{name} (found {:?}, wanted {shape:?})", found.shape()));
                    return None;
                }
                Some(found.clone())
            };
            let (a, b) = (take("lora_a", [inputs, rank]), take("lora_b", [rank, outputs]));
            if let (Some(a), Some(b)) = (a, b) {
                let (scale, lora) = (self.config.scale, Rc::clone(lora));
                planned.push(Planned {
                    path: path.clone(),
                    block: within_block(path).map(|(block, _)| block),
                    slot: slot.clone(),
                    residual: Residual { a, b, scale, lora },
                });
            }
        }
        if missing.is_empty() && unfit.is_empty() && unread.is_empty() {
            return Ok(planned);
        }
        let unexpected = unread.into_iter().map(str::to_owned).collect();
        Err(EngineError::WeightAudit { dir: self.folder.clone(), missing, unexpected, unfit })
    }

    pub(super) fn targets(&self, path: &str, blocks: usize) -> bool {
        let first = blocks - self.config.num_layers.unwrap_or(blocks).min(blocks);
        let inner = within_block(path).filter(|(block, _)| *block >= first);
        match &self.config.keys {
            None => inner.is_some(),
            Some(keys) => {
                let named = |name: &str| keys.iter().any(|key| key == name);
                named(path) || inner.is_some_and(|(_, inner)| named(inner))
            }
        }
    }

    pub(super) fn check_keys(&self, linears: &BTreeMap<String, Slot>) -> Result<(), EngineError> {
        for key in self.config.keys.iter().flatten() {
            let fits = |path: &String| {
                path == key || within_block(path).is_some_and(|(_, inner)| inner == key)
            };
            if !linears.keys().any(fits) {
                let wanted = "linear layers of the model";
                return Err(self.file.unsupported("lora_parameters.keys", key, wanted));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::within_block;

    #[test]
    fn a_block_is_the_first_number_of_a_path() {
        assert_eq!(within_block("model.layers.3.mlp.up_proj"), Some((3, "mlp.up_proj")));
        assert_eq!(within_block("transformer.h.10.attn.norms.2"), Some((10, "attn.norms.2")));
        assert_eq!(within_block("lm_head"), None);
        assert_eq!(within_block("model.embed.3"), None);
    }
}
