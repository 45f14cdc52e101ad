//! The TOML files of a folder, in name order, read strictly.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use super::CaseError;

/// Files ending in `.toml` directly in `dir`; none where the folder is missing.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, CaseError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let read = |source| CaseError::Read { path: dir.into(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension().is_some_and(|ext| ext == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// One file; an unknown key is an error that names file and line.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, CaseError> {
    let text =
        fs::read_to_string(path).map_err(|source| CaseError::Read { path: path.into(), source })?;
    toml::from_str(&text).map_err(|error| CaseError::parse(path, &error))
}

/// Refuses a name that could not be part of an id.
pub fn check_name(path: &Path, case: &str) -> Result<(), CaseError> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    for part in std::iter::once(stem.as_ref()).chain(case.split('/')) {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if part.is_empty() || !part.bytes().all(fits) {
            let message = format!("`{part}` is no name: letters, digits, `-`, `_` and `.` only");
            return Err(CaseError::Invalid { path: path.into(), name: case.into(), message });
        }
    }
    Ok(())
}
