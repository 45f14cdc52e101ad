//! Models with experts. That they compute what the reference computes is checked by the harness, bit
//! by bit; here are the layouts and packings of their checkpoints, and what only a crafted model shows.

#[expect(dead_code, reason = "this file uses a part of it")]
#[path = "../common/mod.rs"]
mod common;
mod config;
mod experts;
mod fault;
mod layouts;
mod rope;
mod ties;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::Folder;
use mlx_parity_engine::array::{from_host, to_host};
use mlx_parity_engine::ops::packed::{self, Mode};
use mlx_parity_engine::{Decoder, Model};
use mlx_parity_tensor::{Dtype, HostTensor};
use serde_json::Value;

/// 24 tokens and one more: with two picks each, the first call stays below the 64 picks from which
/// rows are sorted by expert; with three it does not.
const IDS: [u32; 25] = [
    3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28, 84, 197, 169, 39, 93,
    75, 105,
];

fn json(name: &str, file: &str) -> Value {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/synthetic").join(name).join(file);
    let text = std::fs::read_to_string(path).expect("a file of goldens/synthetic");
    serde_json::from_str(&text).expect("JSON")
}

/// A synthetic model of the goldens in mlx-lm's layout, plain and in f32, with this crate's own values.
fn synthetic(name: &str) -> Folder {
    let inventory = json(name, "tensors.json");
    let mut model = Folder { config: json(name, "config.json"), tensors: BTreeMap::new() };
    for tensor in inventory["tensors"].as_array().expect("tensors") {
        let shape = tensor["shape"].as_array().expect("a shape").iter();
        let shape: Vec<usize> =
            shape.map(|extent| extent.as_u64().expect("an extent") as usize).collect();
        model.add(tensor["name"].as_str().expect("a name"), &shape, Dtype::F32);
    }
    model
}

/// Packs the tensor `path.weight` of a folder.
fn pack(folder: &mut Folder, path: &str, mode: Mode) {
    let name = format!("{path}.weight");
    let plain = from_host(&folder.tensors[&name]).expect("in");
    let packed = packed::quantize(&plain, mode, None).expect("packed");
    let parts = [
        ("weight", Some(packed.words)),
        ("scales", Some(packed.scales)),
        ("biases", packed.biases),
    ];
    for (suffix, part) in parts {
        let part = to_host(&part.expect("affine has biases")).expect("out");
        folder.tensors.insert(format!("{path}.{suffix}"), part);
    }
}

fn logits(model: &Model) -> [HostTensor; 2] {
    let mut decoder = Decoder::new(model, 2048);
    let prefill = decoder.prefill(&IDS).expect("a prefill");
    [prefill, decoder.step(7).expect("a step")]
}
