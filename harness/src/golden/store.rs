//! Reading and writing goldens.

use std::{
    fs,
    path::{Path, PathBuf},
};

use mlx_parity_tensor::{HostTensor, safetensors::SafetensorsFile};

use super::{
    GOLDEN_SCHEMA, GoldenError, Manifest,
    review::{remove_if_there, replace_dir, sibling},
};
use crate::{case::Case, fingerprint::Fingerprint};

/// File name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// File name of the tensors.
pub const TENSORS: &str = "tensors.safetensors";

/// The goldens of one class of machines.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The goldens for machines like `here`, below `base`.
    pub fn new(base: &Path, here: &Fingerprint) -> Self {
        Self { dir: base.join(here.class()) }
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the golden of a case is, or would be.
    pub fn path_of(&self, case: &str) -> PathBuf {
        self.dir.join(case)
    }

    /// Is there one for this case?
    pub fn has(&self, case: &Case) -> bool {
        self.path_of(&case.id).join(MANIFEST).is_file()
    }
}

/// A golden whose manifest has been read and whose tensors are mapped.
#[derive(Debug)]
pub struct Golden {
    /// The manifest.
    pub manifest: Manifest,
    dir: PathBuf,
    tensors: SafetensorsFile,
}

impl Golden {
    /// Opens the golden in `dir`: reads the manifest and the header of the tensors.
    pub fn open(dir: &Path) -> Result<Self, GoldenError> {
        let manifest = read_manifest(&dir.join(MANIFEST))?;
        let tensors = SafetensorsFile::open(dir.join(TENSORS))?;
        Ok(Self { manifest, dir: dir.into(), tensors })
    }

    /// A tensor, checked against the shape, dtype and digest the manifest gives.
    pub fn tensor(&self, name: &str) -> Result<HostTensor, GoldenError> {
        let damaged = |message| GoldenError::Damaged {
            path: self.dir.join(TENSORS),
            tensor: name.to_owned(),
            message,
        };
        let entry = self
            .manifest
            .tensors
            .get(name)
            .ok_or_else(|| damaged("not in the manifest".to_owned()))?;
        let tensor = self.tensors.tensor(name)?;
        if (tensor.dtype(), tensor.shape()) != (entry.dtype, entry.shape.as_slice()) {
            return Err(damaged(format!(
                "found {} {:?}, the manifest wants {} {:?}",
                tensor.dtype().name(),
                tensor.shape(),
                entry.dtype.name(),
                entry.shape
            )));
        }
        let digest = tensor.digest();
        if digest != entry.digest {
            return Err(damaged(format!("digest {digest}, the manifest wants {}", entry.digest)));
        }
        Ok(tensor)
    }

    /// Is it an answer to this case, from these weights, comparable here? An error says why not.
    pub fn fit(
        &self,
        case: &Case,
        weights: &str,
        config: &str,
        here: &Fingerprint,
    ) -> Result<(), GoldenError> {
        let manifest = &self.manifest;
        let stale = |message| GoldenError::Stale {
            path: self.dir.join(MANIFEST),
            message,
            case: case.id.clone(),
        };
        if manifest.case != case.id || manifest.case_digest != case.digest() {
            return Err(stale(format!("the case `{}` has changed since", case.id)));
        }
        if manifest.weights != weights {
            return Err(stale(format!(
                "frozen from weights {}, these are {weights}",
                manifest.weights
            )));
        }
        if let Some(message) = manifest.composition.unasked(case.composition()) {
            return Err(stale(message));
        }
        if manifest.config != config {
            return Err(stale("the model's config.json has changed since".to_owned()));
        }
        manifest.fingerprint.unfit(here).map_or(Ok(()), |message| Err(stale(message)))
    }
}

fn read_manifest(path: &Path) -> Result<Manifest, GoldenError> {
    let text = fs::read_to_string(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => GoldenError::Missing(path.into()),
        _ => GoldenError::Io { action: "read", path: path.into(), source },
    })?;
    let refuse = |message| GoldenError::Manifest { path: path.into(), message };
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    if manifest.schema == GOLDEN_SCHEMA {
        Ok(manifest)
    } else {
        Err(refuse(format!("schema {}, this version reads {GOLDEN_SCHEMA}", manifest.schema)))
    }
}

/// Writes a golden to `dir` whole or not at all. `tensors` is a file already on the same disk,
/// which is moved in.
pub fn freeze_into(dir: &Path, manifest: &Manifest, tensors: &Path) -> Result<(), GoldenError> {
    let staged = sibling(dir, "freezing");
    remove_if_there(&staged)?;
    let written = stage(&staged, manifest, tensors).and_then(|()| replace_dir(&staged, dir));
    if written.is_err() {
        // The first error is the one to report.
        let _ = remove_if_there(&staged);
    }
    written
}

fn stage(staged: &Path, manifest: &Manifest, tensors: &Path) -> Result<(), GoldenError> {
    let io = |source| GoldenError::Io { action: "write", path: staged.into(), source };
    fs::create_dir_all(staged).map_err(io)?;
    let target = staged.join(TENSORS);
    // A rename fails across file systems; a copy does not.
    if fs::rename(tensors, &target).is_err() {
        fs::copy(tensors, &target).map_err(io)?;
        fs::remove_file(tensors).map_err(io)?;
    }
    let mut text = serde_json::to_string_pretty(manifest).map_err(|error| io(error.into()))?;
    text.push('\n');
    fs::write(staged.join(MANIFEST), text).map_err(io)
}
