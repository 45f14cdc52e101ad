//! A model folder in the Hugging Face layout.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::error::{Fault, SafetensorsError};
use super::file::SafetensorsFile;
use super::header::{Pairs, first_duplicate};
use crate::view::{hash_text, hex_digest};
use crate::{HostTensor, TensorView};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The weights of a model folder: one `model.safetensors`, or the shards its index names.
///
/// Where there is an index it alone decides which files are read; other files beside it are never opened.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    files: Vec<SafetensorsFile>,
    /// Name to position in `files`.
    tensors: BTreeMap<String, usize>,
}

/// The part of the index that is read; what else it holds (total size) says nothing about the tensors.
#[derive(Deserialize)]
struct WireIndex {
    weight_map: Pairs<String>,
}

impl Checkpoint {
    /// Opens a folder and validates every file it reads.
    ///
    /// # Errors
    /// No model, a bad index, a missing shard, a tensor that is not in the shard the index names, or in another one too,
    /// or not in the index, and all that can be wrong with a file.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, SafetensorsError> {
        let folder = folder.as_ref();
        let index = folder.join(INDEX);
        if index.exists() {
            return Self::open_sharded(folder, &index);
        }
        let single = folder.join(SINGLE);
        if !single.exists() {
            return Err(Fault::NoModel.in_file(folder));
        }
        let file = SafetensorsFile::open(&single)?;
        let tensors = file.names().map(|name| (name.to_owned(), 0)).collect();
        Ok(Self { folder: folder.to_owned(), files: vec![file], tensors })
    }

    fn open_sharded(folder: &Path, index: &Path) -> Result<Self, SafetensorsError> {
        let weight_map = read_index(index).map_err(|fault| fault.in_file(index))?;
        let mut files = Vec::new();
        let mut positions = BTreeMap::new();
        for (tensor, shard) in &weight_map {
            if positions.contains_key(shard) {
                continue;
            }
            let path = shard_path(folder, tensor, shard).map_err(|fault| fault.in_file(index))?;
            files.push(SafetensorsFile::open(path)?);
            positions.insert(shard.clone(), files.len() - 1);
        }
        check_shards(&weight_map, &positions, &files).map_err(|fault| fault.in_file(index))?;
        let tensors =
            weight_map.into_iter().map(|(tensor, shard)| (tensor, positions[&shard])).collect();
        Ok(Self { folder: folder.to_owned(), files, tensors })
    }

    /// Names in sorted order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The file that holds a tensor.
    ///
    /// # Errors
    /// [`Fault::NoTensor`].
    pub fn file_of(&self, name: &str) -> Result<&SafetensorsFile, SafetensorsError> {
        let at = self.tensors.get(name).ok_or_else(|| {
            let (tensor, available) = (name.to_owned(), self.tensors.len());
            Fault::NoTensor { tensor, available }.in_file(&self.folder)
        })?;
        Ok(&self.files[*at])
    }

    /// Borrows a tensor from its file's map.
    ///
    /// # Errors
    /// [`Fault::NoTensor`].
    pub fn view(&self, name: &str) -> Result<TensorView<'_>, SafetensorsError> {
        self.file_of(name)?.view(name)
    }

    /// Copies a tensor.
    ///
    /// # Errors
    /// [`Fault::NoTensor`].
    pub fn tensor(&self, name: &str) -> Result<HostTensor, SafetensorsError> {
        Ok(self.view(name)?.to_host())
    }

    /// The files that were opened, in the order of their first tensor.
    pub fn files(&self) -> &[SafetensorsFile] {
        &self.files
    }

    /// `sha256:<hex>` over names, dtypes, shapes and bytes in name order. How the tensors are spread over files, and
    /// the metadata, do not count.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update((self.tensors.len() as u64).to_le_bytes());
        for (name, at) in &self.tensors {
            hash_text(&mut hasher, name);
            let view = self.files[*at].view(name).expect("checked when the folder was opened");
            view.hash_into(&mut hasher);
        }
        hex_digest(hasher)
    }
}

fn read_index(index: &Path) -> Result<BTreeMap<String, String>, Fault> {
    let text = fs::read_to_string(index).map_err(|error| Fault::Io { action: "read", error })?;
    let wire: WireIndex = serde_json::from_str(&text)
        .map_err(|error| Fault::BadIndex { message: error.to_string() })?;
    if let Some(name) = first_duplicate(&wire.weight_map) {
        return Err(Fault::BadIndex { message: format!("tensor `{name}` is listed twice") });
    }
    if wire.weight_map.0.is_empty() {
        return Err(Fault::BadIndex { message: "`weight_map` is empty".to_owned() });
    }
    Ok(wire.weight_map.0.into_iter().collect())
}

fn shard_path(folder: &Path, tensor: &str, shard: &str) -> Result<PathBuf, Fault> {
    let (tensor, shard) = (tensor.to_owned(), shard.to_owned());
    if Path::new(&shard).file_name() != Some(shard.as_ref()) {
        return Err(Fault::ShardOutside { tensor, shard });
    }
    let path = folder.join(&shard);
    if path.exists() { Ok(path) } else { Err(Fault::MissingShard { shard, tensor }) }
}

/// Every tensor of the index is in its shard, and every tensor of a shard is sent there by the index.
fn check_shards(
    weight_map: &BTreeMap<String, String>,
    positions: &BTreeMap<String, usize>,
    files: &[SafetensorsFile],
) -> Result<(), Fault> {
    for (tensor, shard) in weight_map {
        if !files[positions[shard]].contains(tensor) {
            return Err(Fault::NotInShard { tensor: tensor.clone(), shard: shard.clone() });
        }
    }
    for (shard, at) in positions {
        for tensor in files[*at].names() {
            check_home(weight_map, tensor, shard)?;
        }
    }
    Ok(())
}

fn check_home(
    weight_map: &BTreeMap<String, String>,
    tensor: &str,
    shard: &str,
) -> Result<(), Fault> {
    let (tensor, shard) = (tensor.to_owned(), shard.to_owned());
    match weight_map.get(&tensor) {
        Some(wanted) if *wanted == shard => Ok(()),
        Some(wanted) => Err(Fault::InTwoShards { tensor, shard, wanted: wanted.clone() }),
        None => Err(Fault::NotInIndex { tensor, shard }),
    }
}
