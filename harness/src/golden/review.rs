//! Pending goldens: listed, accepted by a person, never in continuous integration.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{GoldenError, MANIFEST, Store};
use crate::case::Case;

/// Is this continuous integration? (`CI` set to anything but nothing, `0` or `false`.)
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// A golden that waits for acceptance.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Id of its case.
    pub case: String,
    /// Its folder, ending in `.new`.
    pub path: PathBuf,
    /// The accepted golden it would replace, if there is one.
    pub replaces: Option<PathBuf>,
}

/// Every pending golden in the store, by case id.
pub fn pending(store: &Store) -> Result<Vec<Pending>, GoldenError> {
    let mut found = Vec::new();
    for path in golden_dirs(store.dir())? {
        let Some(text) = path.to_str().and_then(|text| text.strip_suffix(".new")) else { continue };
        let accepted = PathBuf::from(text);
        let case = case_id(store.dir(), &accepted);
        let replaces = accepted.exists().then_some(accepted);
        found.push(Pending { case, path, replaces });
    }
    Ok(found)
}

/// Moves a pending golden into the place of the accepted one.
pub fn accept(pending: &Pending) -> Result<(), GoldenError> {
    if in_ci() {
        return Err(GoldenError::InCi);
    }
    replace_dir(&pending.path, &pending.path.with_extension(""))
}

/// Accepts a golden frozen on this machine: copies it from the live store beside the committed ones.
pub fn accept_live(case: &Case, live: &Store, frozen: &Store) -> Result<PathBuf, GoldenError> {
    if in_ci() {
        return Err(GoldenError::InCi);
    }
    let (from, to) = (live.path_of(&case.id), frozen.path_of(&case.id));
    if !from.join(MANIFEST).is_file() {
        return Err(GoldenError::Missing(from));
    }
    let staged = sibling(&to, "accepting");
    remove_if_there(&staged)?;
    copy_dir(&from, &staged)?;
    replace_dir(&staged, &to)?;
    Ok(to)
}

/// Drops a pending golden.
pub fn reject(pending: &Pending) -> Result<(), GoldenError> {
    remove_if_there(&pending.path)
}

/// Accepted goldens that no case asks for.
pub fn orphans(store: &Store, cases: &[Case]) -> Result<Vec<PathBuf>, GoldenError> {
    let wanted: Vec<_> = cases.iter().map(|case| store.path_of(&case.id)).collect();
    let mut found = golden_dirs(store.dir())?;
    found.retain(|path| path.extension().is_none_or(|ext| ext != "new") && !wanted.contains(path));
    Ok(found)
}

/// Renames `from` to `to`, with the old `to` out of the way for as short as two renames take.
pub(super) fn replace_dir(from: &Path, to: &Path) -> Result<(), GoldenError> {
    let old = sibling(to, "replaced");
    remove_if_there(&old)?;
    let io = |source| GoldenError::Io { action: "replace", path: to.into(), source };
    if to.exists() {
        fs::rename(to, &old).map_err(io)?;
    }
    fs::rename(from, to).map_err(io)?;
    remove_if_there(&old)
}

pub(super) fn remove_if_there(path: &Path) -> Result<(), GoldenError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(GoldenError::Io { action: "remove", path: path.into(), source: error })
        }
        _ => Ok(()),
    }
}

pub(super) fn sibling(path: &Path, tag: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{tag}-{}", std::process::id()))
}

fn copy_dir(from: &Path, to: &Path) -> Result<(), GoldenError> {
    let io = |source| GoldenError::Io { action: "copy", path: from.into(), source };
    fs::create_dir_all(to).map_err(io)?;
    for entry in fs::read_dir(from).map_err(io)? {
        let entry = entry.map_err(io)?;
        fs::copy(entry.path(), to.join(entry.file_name())).map_err(io)?;
    }
    Ok(())
}

fn case_id(store: &Path, path: &Path) -> String {
    path.strip_prefix(store).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Folders below `dir` that hold a manifest, in order.
fn golden_dirs(dir: &Path) -> Result<Vec<PathBuf>, GoldenError> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        if dir.join(MANIFEST).is_file() {
            found.push(dir);
            continue;
        }
        let io = |source| GoldenError::Io { action: "list", path: dir.clone(), source };
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(io)?,
        };
        for entry in entries {
            let path = entry.map_err(io)?.path();
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
