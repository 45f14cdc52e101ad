//! The generator of synthetic weights: what Rust makes has the committed digests, and so has what its
//! Python twin makes; and all goldens stay small.
//!
//! Where the oracle's Python is not installed its test is *ignored*, which no runner counts as a pass.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_parity::{
    digest,
    root::Root,
    synthetic::{self, Inventory, Lane},
};
use mlx_parity_tensor::safetensors;
use serde::Deserialize;

/// All committed goldens together, in bytes.
const FROZEN_LIMIT: u64 = 30_000_000;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> Result<Vec<Trial>, Box<dyn std::error::Error>> {
    let root = Root::find(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")))?;
    let folders = synthetic::folders(&root.synthetic())?;
    if folders.len() < 3 {
        return Err(format!("{} synthetic models, wanted three at least", folders.len()).into());
    }
    let mut trials = Vec::new();
    for (name, dir) in folders.clone() {
        for lane in Lane::ALL {
            let dir = dir.clone();
            let title = format!("digest::{name}::{}", lane.name());
            trials.push(Trial::test(title, move || committed(&dir, lane)));
        }
    }
    let (twin, python) = (root.clone(), root.oracle_python());
    let missing = !python.is_file();
    if missing {
        eprintln!("twin is ignored: {} is missing; run `cargo xtask setup`", python.display());
    }
    let twin = Trial::test("twin", move || python_agrees(&twin, &folders));
    trials.push(twin.with_ignored_flag(missing));
    trials.push(Trial::test("frozen_goldens_are_small", move || small(&root.frozen())));
    Ok(trials)
}

/// Rust's weight file has the digest that is committed.
fn committed(dir: &Path, lane: Lane) -> Result<(), Failed> {
    let inventory = Inventory::load(dir)?;
    let tensors = synthetic::tensors(&inventory, lane)?;
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("model.safetensors");
    let named = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(&file, named, &BTreeMap::new())?;
    let (found, wanted) = (digest::of_bytes(&fs::read(file)?), inventory.digest(lane));
    if found == wanted { Ok(()) } else { Err(format!("found {found}, committed {wanted}").into()) }
}

#[derive(Deserialize)]
struct Line {
    folder: PathBuf,
    digests: BTreeMap<Lane, String>,
}

/// The Python twin, run now, gives the committed digests too.
fn python_agrees(root: &Root, folders: &[(String, PathBuf)]) -> Result<(), Failed> {
    let output = Command::new(root.oracle_python())
        .arg(root.path().join("oracles/mlx_lm/synthetic.py"))
        .args(folders.iter().map(|(_, dir)| dir))
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let lines: Vec<Line> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    if lines.len() != folders.len() {
        return Err(format!("{} answers for {} models", lines.len(), folders.len()).into());
    }
    for line in lines {
        let inventory = Inventory::load(&line.folder)?;
        for lane in Lane::ALL {
            let (found, wanted) = (line.digests.get(&lane), inventory.digest(lane));
            if found.is_none_or(|found| found != wanted) {
                let place = format!("{} {}", line.folder.display(), lane.name());
                return Err(format!("{place}: Python {found:?}, committed {wanted}").into());
            }
        }
    }
    Ok(())
}

fn small(dir: &Path) -> Result<(), Failed> {
    let found = bytes_below(dir)?;
    if found <= FROZEN_LIMIT {
        return Ok(());
    }
    Err(format!("{} holds {found} bytes, wanted at most {FROZEN_LIMIT}", dir.display()).into())
}

fn bytes_below(dir: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        total += if path.is_dir() { bytes_below(&path)? } else { fs::metadata(&path)?.len() };
    }
    Ok(total)
}
