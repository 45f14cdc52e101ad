//! Packed caches and the compositions that use them. That they compute what the references compute is
//! checked by the harness, bit by bit; here is what must hold whatever the numbers are.

mod caches;
#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "../common/mod.rs"]
mod common;
mod decoder;
mod memory;
mod refusals;
mod saved;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::Folder;
use mlx_parity_engine::{Composition, Convert, KvBits, Model, Route};
use mlx_parity_tensor::Dtype;
use serde_json::Value;

const KV4: KvBits = KvBits { bits: 4, group: 32 };
const KV8: KvBits = KvBits { bits: 8, group: 32 };

fn json(name: &str, file: &str) -> Value {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/synthetic").join(name).join(file);
    let text = std::fs::read_to_string(path).expect("a file of goldens/synthetic");
    serde_json::from_str(&text).expect("JSON")
}

/// A synthetic model of the goldens, with this crate's own values.
fn synthetic(name: &str, dtype: Dtype) -> Model {
    let inventory = json(name, "tensors.json");
    let mut folder = Folder { config: json(name, "config.json"), tensors: BTreeMap::new() };
    for tensor in inventory["tensors"].as_array().expect("tensors") {
        let shape = tensor["shape"].as_array().expect("a shape").iter();
        let shape: Vec<usize> =
            shape.map(|extent| extent.as_u64().expect("an extent") as usize).collect();
        folder.add(tensor["name"].as_str().expect("a name"), &shape, dtype);
    }
    folder.load().expect("a good folder")
}

fn uniform(model: &Model, bits: KvBits, convert: Convert, attention: Route) -> Composition {
    Composition { convert, attention, ..Composition::uniform(model, bits) }
}

/// Ids of a synthetic model's vocabulary.
fn ids(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 97 + i * i * 31) % 251 + 3).collect()
}
