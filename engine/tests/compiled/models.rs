//! Models, and what is compared of a decoder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mlx_parity_engine::{Decoder, EngineError, LoadOptions, Model, Rung};
use mlx_parity_tensor::Dtype;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::common::Folder;

pub fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens")
}

/// The names of all synthetic models that decode token by token.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(goldens().join("synthetic")).expect("synthetic models");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.retain(|name| !name.starts_with("diffusion"));
    names.sort();
    names
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

/// A synthetic model with weights of our own.
pub fn folder(name: &str, dtype: Dtype) -> Folder {
    let source = goldens().join("synthetic").join(name);
    let mut config = json(&source.join("config.json"));
    // Packed tensors of the lanes with quantization are plain here.
    if let Some(config) = config.as_object_mut() {
        config.remove("quantization");
    }
    let mut folder = Folder { config, tensors: BTreeMap::new() };
    for tensor in json(&source.join("tensors.json"))["tensors"].as_array().expect("a list") {
        let shape: Vec<usize> = serde_json::from_value(tensor["shape"].clone()).expect("a shape");
        folder.add(tensor["name"].as_str().expect("a name"), &shape, dtype);
    }
    folder
}

/// The model from the first rung whose network has segments: a generated network has none.
pub fn segmented(folder: &Folder) -> Model {
    let model = folder.load().expect("a good folder");
    if model.rung() != Rung::Generated {
        return model;
    }
    let dir = folder.write();
    let load = |rung| Model::load(dir.path(), &LoadOptions { rung: Some(rung), fault: None });
    match load(Rung::Dedicated) {
        Err(EngineError::NoSuchRung { .. }) => load(Rung::Universal).expect("a good folder"),
        other => other.expect("a good folder"),
    }
}

/// Everything the caches hold, unused slots and counters too.
pub fn state(decoder: &Decoder) -> Vec<u8> {
    let file = NamedTempFile::new().expect("a file");
    decoder.save_caches(file.path()).expect("a save");
    fs::read(file.path()).expect("the file")
}
