//! A project folder of its own for each test, and the binary run in it.
#![allow(dead_code, reason = "each test binary uses a part of this")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use mlx_parity::row::Row;
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_mlx-parity");

/// The checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A copy of the goldens, with the models, oracles and environment of the checkout linked in.
pub struct Project {
    dir: TempDir,
}

impl Project {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let here = checkout();
        copy_tree(&here.join("goldens"), &dir.path().join("goldens"));
        // What waits for a person in the checkout is no part of it.
        let _ = fs::remove_file(dir.path().join("goldens/ledger.toml.new"));
        symlink(here.join("oracles"), dir.path().join("oracles")).unwrap();
        let mlx = dir.path().join("target/mlx");
        fs::create_dir_all(&mlx).unwrap();
        for name in ["venv", "models"] {
            symlink(here.join("target/mlx").join(name), mlx.join(name)).unwrap();
        }
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Keeps only this case file in its tier.
    pub fn only_cases(self, tier: &str, text: &str) -> Self {
        let dir = self.path().join("goldens/cases").join(tier);
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("test.toml"), text).unwrap();
        self.expect_nothing_of(tier);
        self
    }

    /// Takes out what the checkout expects to fail in a tier: an entry that fits no check is an error.
    fn expect_nothing_of(&self, tier: &str) {
        let path = self.path().join("goldens/expectations.toml");
        let text = fs::read_to_string(&path).unwrap();
        let mut tables = text.split("[[expect]]");
        let head = tables.next().unwrap().to_owned();
        let kept = tables.filter(|table| !table.contains(&format!("[\"{tier}/")));
        let kept: Vec<String> = kept.map(|table| format!("[[expect]]{table}")).collect();
        fs::write(path, head + &kept.concat()).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.path()).env_remove("CI");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from(self.command(arguments).output().unwrap())
    }

    /// The folder of a golden of this machine's class.
    pub fn golden(&self, case: &str) -> PathBuf {
        let class = fs::read_dir(self.path().join("goldens/frozen")).unwrap().next().unwrap();
        class.unwrap().path().join(case)
    }
}

/// What the binary did.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    pub fn rows(&self) -> Vec<Row> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
