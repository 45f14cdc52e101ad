//! The LoRA adapter of a synthetic model: `goldens/synthetic/<name>/adapter_config.json`.
//!
//! Its tensors come from the generator, `lora_a` and `lora_b` as `linear`. They are f32, as mlx-lm
//! trains them, in the bf16 lane too, and bf16 in the 4-bit lane.

use std::{collections::BTreeMap, fs, io, path::Path};

use mlx_parity_tensor::{Dtype, HostTensor, safetensors};
use serde::Deserialize;

use super::{Init, Inventory, Lane, SyntheticError, inventory::module_of, values};

const CONFIG: &str = "adapter_config.json";

#[derive(Deserialize)]
struct WireAdapter {
    num_layers: usize,
    lora_parameters: WireLora,
}

#[derive(Deserialize)]
struct WireLora {
    rank: usize,
    keys: Vec<String>,
}

/// The bytes of its config; none where the model has no adapter.
pub(super) fn config(source: &Path) -> Result<Option<Vec<u8>>, SyntheticError> {
    let path = source.join(CONFIG);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SyntheticError::io("read", &path, error)),
    }
}

/// Writes the adapter's folder `dir`.
pub(super) fn write(
    inventory: &Inventory,
    source: &Path,
    config: &[u8],
    lane: Lane,
    dir: &Path,
) -> Result<(), SyntheticError> {
    let wire: WireAdapter = serde_json::from_slice(config)
        .map_err(|error| SyntheticError::invalid(&source.join(CONFIG), error.to_string()))?;
    let tensors = tensors(inventory, &wire, lane)?;
    fs::create_dir_all(dir).map_err(|error| SyntheticError::io("create", dir, error))?;
    let named = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(dir.join("adapters.safetensors"), named, &BTreeMap::new())?;
    let path = dir.join(CONFIG);
    fs::write(&path, config).map_err(|error| SyntheticError::io("write", &path, error))
}

fn tensors(
    inventory: &Inventory,
    wire: &WireAdapter,
    lane: Lane,
) -> Result<Vec<(String, HostTensor)>, SyntheticError> {
    let dtype = if lane == Lane::FourBit { Dtype::Bf16 } else { Dtype::F32 };
    let blocks = inventory.tensors.iter().filter_map(|entry| block(&entry.name)).max();
    let first = blocks.map_or(0, |(last, _)| last + 1) - wire.num_layers;
    let rank = wire.lora_parameters.rank;
    let mut found = Vec::new();
    for entry in &inventory.tensors {
        let path = module_of(&entry.name);
        let inner = block(path).filter(|(block, _)| *block >= first).map(|(_, inner)| inner);
        let named = |name: &str| wire.lora_parameters.keys.iter().any(|key| key == name);
        let [outputs, inputs] = entry.shape[..] else { continue };
        if !named(path) && !inner.is_some_and(named) {
            continue;
        }
        for (part, shape) in [("lora_a", [inputs, rank]), ("lora_b", [rank, outputs])] {
            let name = format!("{path}.{part}");
            let tensor = values::tensor(&name, Init::Linear, &shape, dtype)?;
            found.push((name, tensor));
        }
    }
    Ok(found)
}

/// The number of a block in a path, and the path within the block.
fn block(path: &str) -> Option<(usize, &str)> {
    let mut rest = path;
    while let Some((part, inner)) = rest.split_once('.') {
        if let Ok(block) = part.parse() {
            return Some((block, inner));
        }
        rest = inner;
    }
    None
}
