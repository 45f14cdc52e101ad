//! `mlx-parity kl` as a person or a script meets it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod dumps;
mod killed;
mod numbers;
mod stored;
mod verdict;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use mlx_parity::kl::{Report, record::Scored};
use tempfile::TempDir;

const HELD: i32 = 0;
const USAGE: i32 = 2;
const MISMATCH: i32 = 100;
const GOLDEN: i32 = 101;
const CRASHED: i32 = 103;

/// A scratch folder for records, texts and dumps, and `mlx-parity kl` run from the checkout.
struct Bench {
    dir: TempDir,
}

/// What a run left.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file with the first `bytes` of an English text that does not change.
    fn text(&self, bytes: usize) -> String {
        let path = self.path("text.txt");
        let license = fs::read_to_string(support::checkout().join("LICENSE")).unwrap();
        fs::write(&path, &license[..bytes]).unwrap();
        path.display().to_string()
    }

    fn ids(&self, ids: &[u32]) -> String {
        let path = self.path("ids.json");
        fs::write(&path, serde_json::to_string(ids).unwrap()).unwrap();
        path.display().to_string()
    }

    /// A copy of a model's folder, to be changed.
    fn copy_of(&self, name: &str) -> PathBuf {
        let folder = self.path("model");
        fs::create_dir(&folder).unwrap();
        for file in fs::read_dir(model(name)).unwrap().flatten() {
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        folder
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(support::PROGRAM);
        command.arg("kl").args(arguments).current_dir(support::checkout());
        // MLX's portable BLAS takes a millisecond a token, and a debug build its time to resample.
        command.args(["--resamples", "400", "--control", "64"]);
        command.arg("--record").arg(self.path("record"));
        command.arg("--store").arg(self.path("store"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// A run whose report is asked for as JSON.
    #[track_caller]
    fn report(&self, arguments: &[&str], code: i32) -> Report {
        let ran = self.run(&[arguments, &["--format", "json"]].concat()).expect(code);
        serde_json::from_str(&ran.stdout).unwrap()
    }
}

impl Ran {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// Every window of a run, as its record has them.
fn windows(report: &Report) -> Vec<Scored> {
    let text = fs::read_to_string(Path::new(&report.record).join("positions.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Ids of the test text under a model's tokenizer.
fn encoded(model: &Path, bytes: usize) -> Vec<u32> {
    let license = fs::read_to_string(support::checkout().join("LICENSE")).unwrap();
    mlx_parity_engine::Tokenizer::load(model).unwrap().encode(&license[..bytes]).unwrap()
}

fn model(name: &str) -> PathBuf {
    let checkout = support::checkout();
    [checkout.join("target/mlx/models").join(name), checkout.join("goldens/models").join(name)]
        .into_iter()
        .find(|dir| dir.is_dir())
        .unwrap()
}

/// Runs a script in the oracle's environment.
#[track_caller]
fn python(script: &str, arguments: &[&str]) -> String {
    let checkout = support::checkout();
    let done = Command::new(checkout.join("target/mlx/venv/bin/python"))
        .arg(checkout.join("harness/tests/kl").join(script))
        .args(arguments)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}
