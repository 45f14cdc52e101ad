//! Adapters that know nothing yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, json};

use super::{Adapter, AdapterConfig, CONFIG};
use crate::config::ConfigFile;
use crate::error::EngineError;
use crate::nn::Slot;
use crate::ops::{self, Keys};

/// What a new adapter changes: the `lora_parameters` of mlx-lm, with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraShape {
    /// Inner width; above 0.
    pub rank: usize,
    /// Multiplies the residual.
    pub scale: f64,
    /// Blocks from the last one on; all of them where it is 0.
    pub num_layers: usize,
    /// Module paths within a block, or of the whole model; every linear layer of the blocks where absent.
    pub keys: Option<Vec<String>>,
}

impl Default for LoraShape {
    fn default() -> Self {
        Self { rank: 8, scale: 20.0, num_layers: 16, keys: None }
    }
}

impl Adapter {
    /// An adapter that changes nothing: `lora_a` uniform within one over the root of the layer's inputs and
    /// `lora_b` 0, both f32, as `LoRALinear` of `mlx_lm/tuner/lora.py` starts. Each layer, in the order of
    /// paths, draws with one key of the seed; mlx-lm draws other numbers.
    pub(crate) fn fresh(
        shape: &LoraShape,
        seed: u64,
        linears: &BTreeMap<String, Slot>,
        blocks: usize,
    ) -> Result<Self, EngineError> {
        let mut object = Map::new();
        object.insert("fine_tune_type".to_owned(), "lora".into());
        object.insert("num_layers".to_owned(), shape.num_layers.into());
        let mut lora = json!({"rank": shape.rank, "scale": shape.scale, "dropout": 0.0});
        if let Some(keys) = &shape.keys {
            lora["keys"] = json!(keys);
        }
        object.insert("lora_parameters".to_owned(), lora);
        let file = ConfigFile::unwritten(PathBuf::from(CONFIG), object);
        let config = AdapterConfig::read(&file)?;
        let (folder, tensors, unfit) = (Path::new("").to_owned(), BTreeMap::new(), Vec::new());
        let adapter = Self { folder, file, config, tensors, unfit, digest: String::new() };
        adapter.check_keys(linears)?;
        let (mut keys, mut tensors) = (Keys::seeded(seed)?, BTreeMap::new());
        let rank = shape.rank as i32;
        for (path, slot) in linears.iter().filter(|(path, _)| adapter.targets(path, blocks)) {
            let [outputs, inputs] = slot.shape();
            let bound = (1.0 / f64::from(inputs).sqrt()) as f32;
            let a = ops::uniform(bound, &[inputs, rank], &keys.draw()?)?;
            let b = ops::zeros(&[rank, outputs], a.dtype())?;
            tensors.insert(format!("{path}.lora_a"), a);
            tensors.insert(format!("{path}.lora_b"), b);
        }
        ops::eval(tensors.values())?;
        adapter.with(tensors)
    }
}
