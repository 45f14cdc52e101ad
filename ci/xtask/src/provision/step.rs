//! A step of setup and the stamp that says it is done: a file holding the digest of the step's
//! inputs, removed before the step runs and written after it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

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
    pub fn ensure(&self, verbose: bool, make: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.is_current() {
            if verbose {
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
        self.hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;
    use tempfile::TempDir;

    use super::*;

    struct Fixture {
        folder: TempDir,
        runs: Cell<u32>,
    }

    impl Fixture {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().expect("a temporary folder"), runs: Cell::new(0) }
        }

        fn output(&self) -> PathBuf {
            self.folder.path().join("out")
        }

        fn step(&self, input: &str) -> Step {
            let inputs = Inputs::default().text("input", input);
            Step::new(self.folder.path(), "fake", inputs, vec![self.output()])
        }

        fn ensure(&self, input: &str) -> Result<()> {
            self.step(input).ensure(false, || {
                self.runs.set(self.runs.get() + 1);
                Ok(fs::write(self.output(), input)?)
            })
        }
    }

    #[test]
    fn a_step_runs_once_for_the_same_inputs() {
        let fixture = Fixture::new();
        fixture.ensure("a").expect("first");
        fixture.ensure("a").expect("second");
        assert_eq!(fixture.runs.get(), 1);
    }

    #[test]
    fn another_input_runs_the_step_again_and_so_does_the_first_one_after_it() {
        let fixture = Fixture::new();
        for input in ["a", "b", "a"] {
            fixture.ensure(input).expect("made");
        }
        assert_eq!(fixture.runs.get(), 3);
    }

    #[test]
    fn a_lost_output_runs_the_step_again() {
        let fixture = Fixture::new();
        fixture.ensure("a").expect("first");
        fs::remove_file(fixture.output()).expect("removed");
        fixture.ensure("a").expect("second");
        assert_eq!(fixture.runs.get(), 2);
    }

    #[test]
    fn a_step_that_fails_or_makes_nothing_is_not_current() {
        let fixture = Fixture::new();
        let step = fixture.step("a");
        let error = step.ensure(false, || bail!("disk full")).expect_err("it failed");
        assert_eq!(format!("{error:#}"), "setup step fake: disk full");
        let error = step.ensure(false, || Ok(())).expect_err("nothing was made");
        assert!(format!("{error:#}").ends_with("out was not made"), "{error:#}");
        assert!(!step.is_current());
    }

    /// A kill leaves what the step had written so far. The stamp of the run before must not vouch
    /// for it.
    #[test]
    fn a_step_that_is_cut_off_runs_again() {
        let fixture = Fixture::new();
        fixture.ensure("a").expect("first");
        let cut_off = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            fixture.step("b").ensure(false, || {
                fs::write(fixture.output(), "half of b")?;
                panic!("killed")
            })
        }));
        assert!(cut_off.is_err());
        assert!(!fixture.step("a").is_current());
        fixture.ensure("a").expect("again");
        assert_eq!(fs::read_to_string(fixture.output()).expect("output"), "a");
    }

    #[test]
    fn where_one_input_ends_and_the_next_begins_matters() {
        let digest = |texts: [&str; 2]| {
            texts.iter().fold(Inputs::default(), |inputs, text| inputs.text("", text)).finish()
        };
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
    }
}
