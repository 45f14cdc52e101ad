//! A step of setup and the stamp that says it is done: a file holding the digest of the step's
//! inputs, removed before the step runs and written after it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::Session;

/// One step: what it depends on, what it makes.
#[derive(Debug)]
pub struct Step {
    name: &'static str,
    digest: String,
    stamp: PathBuf,
    outputs: Vec<PathBuf>,
}

impl Step {
    /// The step `name` with its stamp under `mlx`.
    pub fn new(mlx: &Path, name: &'static str, inputs: Inputs, outputs: Vec<PathBuf>) -> Self {
        Self { name, digest: inputs.finish(), stamp: mlx.join("stamps").join(name), outputs }
    }

    /// The digest of the step's inputs.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether the step was done with these inputs and all its outputs still exist.
    pub fn is_current(&self) -> bool {
        fs::read_to_string(&self.stamp).is_ok_and(|found| found == self.digest)
            && self.outputs.iter().all(|output| output.exists())
    }

    /// Runs `make` unless the step is current.
    pub fn ensure(&self, session: &Session, make: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.is_current() {
            if session.options.verbose {
                eprintln!("{:<10} up to date", self.name);
            }
            return Ok(());
        }
        eprintln!("{:<10} …", self.name);
        let start = Instant::now();
        self.redo(make).with_context(|| format!("setup step {}", self.name))?;
        eprintln!("{:<10} done in {:.1} s", self.name, start.elapsed().as_secs_f64());
        Ok(())
    }

    fn redo(&self, make: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.stamp.exists() {
            fs::remove_file(&self.stamp)
                .with_context(|| format!("cannot remove {}", self.stamp.display()))?;
        }
        make()?;
        for output in &self.outputs {
            ensure!(output.exists(), "{} was not made", output.display());
        }
        write_atomic(&self.stamp, &self.digest)
    }
}

/// Writes `text` to a file beside `path`, then renames it: a reader sees the old or the new file.
pub fn write_atomic(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().with_context(|| format!("{} has no parent", path.display()))?;
    let part = path.with_extension("part");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&part, text))
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// A digest over named inputs.
#[derive(Debug, Default)]
pub struct Inputs {
    hash: Sha256,
}

impl Inputs {
    /// Adds a text under a label.
    pub fn text(self, label: &str, text: &str) -> Self {
        self.bytes(label, text.as_bytes())
    }

    /// Adds the contents of a file.
    pub fn file(self, path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(self.bytes(&name, &bytes))
    }

    /// Adds the inputs of a step that this one builds on.
    pub fn step(self, step: &Step) -> Self {
        self.text(step.name, &step.digest)
    }

    /// The digest, in hexadecimal.
    pub fn finish(self) -> String {
        self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Lengths go in too, so that no two lists of inputs hash the same bytes.
    fn bytes(mut self, label: &str, bytes: &[u8]) -> Self {
        for part in [label.as_bytes(), bytes] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
        self
    }
}
