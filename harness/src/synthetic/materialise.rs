//! Making the folder of a model: config and weights, whole or not at all.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use mlx_parity_tensor::{Dtype, HostTensor, safetensors};

use super::{
    GENERATOR, Inventory, Lane, SyntheticError, adapter, inventory::module_of, packed, values,
};
use crate::{digest, model::ADAPTERS};

/// Written last into the folder; says what it was made from.
const STAMP: &str = "synthetic.json";
const WEIGHTS: &str = "model.safetensors";

/// The tensors of a lane, in the order of the inventory.
///
/// # Errors
/// [`SyntheticError::Tensor`] for a shape that overflows.
pub fn tensors(
    inventory: &Inventory,
    lane: Lane,
) -> Result<Vec<(String, HostTensor)>, SyntheticError> {
    let mut all = Vec::new();
    for entry in &inventory.tensors {
        if let Some(packing) = entry.packing(lane) {
            let exponent = entry.init.exponent(&entry.shape);
            let path = module_of(&entry.name);
            all.extend(packed::tensors(path, &entry.shape, exponent, packing)?);
        } else {
            let plain = lane == Lane::F32 || entry.keep_f32;
            let dtype = if plain { Dtype::F32 } else { Dtype::Bf16 };
            let tensor = values::tensor(&entry.name, entry.init, &entry.shape, dtype)?;
            all.push((entry.name.clone(), tensor));
        }
    }
    Ok(all)
}

/// Makes `target` hold the model in that lane, unless it does already.
///
/// Several processes may do so at once: each builds a folder of its own and renames it; who comes
/// second finds the work done.
///
/// # Errors
/// An inventory that cannot be read, a weight file whose digest is not the committed one, or a folder
/// that cannot be written.
pub fn materialise(source: &Path, lane: Lane, target: &Path) -> Result<(), SyntheticError> {
    let inventory = Inventory::load(source)?;
    let adapter = adapter::config(source)?;
    let stamp = stamp(&inventory, lane, adapter.as_deref());
    if is_current(target, &stamp) {
        return Ok(());
    }
    let parent = target.parent().unwrap_or(target);
    fs::create_dir_all(parent).map_err(|error| SyntheticError::io("create", parent, error))?;
    let staged = tempfile::Builder::new()
        .prefix(".making-")
        .tempdir_in(parent)
        .map_err(|error| SyntheticError::io("write", parent, error))?;
    if let Some(config) = adapter {
        let dir = staged.path().join(ADAPTERS);
        adapter::write(&inventory, source, &config, lane, &dir)?;
    }
    fill(&inventory, source, lane, staged.path(), &stamp)?;
    replace(staged, target, &stamp)
}

fn stamp(inventory: &Inventory, lane: Lane, adapter: Option<&[u8]>) -> String {
    let identity = inventory.identity().to_owned();
    let mut parts = vec![GENERATOR.to_string(), identity, lane.name().to_owned()];
    parts.extend(adapter.map(digest::of_bytes));
    let text = parts.join(" ");
    serde_json::json!({ "made-from": digest::of_bytes(text.as_bytes()) }).to_string() + "\n"
}

fn is_current(target: &Path, stamp: &str) -> bool {
    fs::read_to_string(target.join(STAMP)).is_ok_and(|found| found == stamp)
        && [WEIGHTS, "config.json"].iter().all(|name| target.join(name).is_file())
}

fn fill(
    inventory: &Inventory,
    source: &Path,
    lane: Lane,
    dir: &Path,
    stamp: &str,
) -> Result<(), SyntheticError> {
    let made = tensors(inventory, lane)?;
    let path = dir.join(WEIGHTS);
    let named = made.iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(&path, named, &BTreeMap::new())?;
    let bytes = fs::read(&path).map_err(|error| SyntheticError::io("read", &path, error))?;
    let found = digest::of_bytes(&bytes);
    if found != inventory.digest(lane) {
        return Err(SyntheticError::OtherWeights {
            path: super::inventory::tensors_file(source),
            lane: lane.name(),
            found,
            wanted: inventory.digest(lane).to_owned(),
        });
    }
    let config = format!("{:#}\n", inventory.config_of(lane));
    for (name, text) in [("config.json", config.as_str()), (STAMP, stamp)] {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| SyntheticError::io("write", &path, error))?;
    }
    Ok(())
}

/// Renames the staged folder to `target`, a stale one moved out of the way.
fn replace(staged: tempfile::TempDir, target: &Path, stamp: &str) -> Result<(), SyntheticError> {
    make_readable(staged.path());
    loop {
        match fs::rename(staged.path(), target) {
            Ok(()) => {
                // What it guarded has another name now.
                let _ = staged.keep();
                return Ok(());
            }
            Err(_) if is_current(target, stamp) => return Ok(()),
            Err(error) if target.exists() => move_aside(target, error)?,
            Err(error) => return Err(SyntheticError::io("write", target, error)),
        }
    }
}

/// Temporary folders are private by default.
fn make_readable(dir: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // A folder only its owner can read is a nuisance, no failure.
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o755));
    }
}

fn move_aside(target: &Path, why: io::Error) -> Result<(), SyntheticError> {
    let parent: PathBuf = target.parent().unwrap_or(target).into();
    let aside = tempfile::Builder::new()
        .prefix(".stale-")
        .tempdir_in(&parent)
        .map_err(|error| SyntheticError::io("write", &parent, error))?;
    match fs::rename(target, aside.path().join("old")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(SyntheticError::io("replace", target, why))
        }
        // Gone already: another process moved it.
        _ => Ok(()),
    }
}
