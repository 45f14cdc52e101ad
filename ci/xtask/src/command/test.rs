//! `cargo xtask test`: everything that must hold before a change lands. Every step runs, also after
//! one that failed, and a table at the end says how each ended.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cargo;
use crate::layout::Layout;
use crate::process;
use crate::provision::{self, Options};

/// Run formatting, lints, all tests, and the documentation build.
#[derive(clap::Args)]
pub struct Test {
    /// Passed on to `cargo test`, such as a filter
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

impl Test {
    /// Fails where any step failed.
    pub fn run(self) -> Result<ExitCode> {
        let layout = Layout::locate()?;
        let start = Instant::now();
        provision::run(&layout, &Options { verbose: true, ..Options::default() })?;
        let setup = Report { name: "setup", failure: None, time: start.elapsed() };
        let checks = checks(&layout, &self.args)?;
        let reports: Vec<Report> = std::iter::once(Ok(setup))
            .chain(checks.into_iter().map(Check::run))
            .collect::<Result<_>>()?;
        eprint!("\n{}", summary(&reports));
        let held = reports.iter().all(|report| report.failure.is_none());
        Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// One step: a name for the table and what to run.
struct Check {
    name: &'static str,
    command: Command,
}

/// How a step ended.
struct Report {
    name: &'static str,
    failure: Option<String>,
    time: Duration,
}

impl Check {
    fn run(mut self) -> Result<Report> {
        eprintln!("\n── {}: {}", self.name, process::shown(&self.command));
        let start = Instant::now();
        let status = self.command.status();
        let status = status.with_context(|| format!("cannot start step {}", self.name))?;
        let failure = (!status.success()).then(|| status.to_string());
        Ok(Report { name: self.name, failure, time: start.elapsed() })
    }
}

fn checks(layout: &Layout, test_args: &[OsString]) -> Result<Vec<Check>> {
    let cargo = |name, args: &[&str]| {
        let mut command = cargo::command(layout);
        command.args(args);
        Check { name, command }
    };
    let lints = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    // The harness without the engine must build where there is no MLX.
    let no_mlx = ["check", "--package", "mlx-parity", "--no-default-features", "--all-targets"];
    let mut test = cargo("test", &["test", "--workspace", "--no-fail-fast"]);
    test.command.args(test_args);
    let mut doc = cargo("doc", &["doc", "--workspace", "--no-deps"]);
    doc.command.env("RUSTDOCFLAGS", "--deny warnings");
    let mut checks =
        vec![cargo("fmt", &["fmt", "--all", "--check"]), cargo("clippy", &lints), test, doc];
    checks.push(cargo("no MLX", &no_mlx));
    checks.extend(python_test_folders(layout)?.iter().map(|folder| python_tests(layout, folder)));
    Ok(checks)
}

fn python_tests(layout: &Layout, folder: &PathBuf) -> Check {
    let mut command = Command::new(layout.python());
    command.current_dir(layout.root()).args(["-m", "unittest", "discover", "--start-directory"]);
    command.arg(folder);
    Check { name: "python", command }
}

/// The folders under `oracles` that hold `test_*.py`.
fn python_test_folders(layout: &Layout) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut queue = vec![layout.join("oracles")];
    while let Some(folder) = queue.pop() {
        let entries = folder.read_dir().with_context(|| folder.display().to_string())?;
        let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let is_test = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("test_") && name.ends_with(".py")
        };
        if paths.iter().any(is_test) {
            found.push(folder);
        }
        queue.extend(paths.into_iter().filter(|path| path.is_dir()));
    }
    found.sort();
    Ok(found)
}

fn summary(reports: &[Report]) -> String {
    let mut text = String::from("step     result     time\n");
    for Report { name, failure, time } in reports {
        let result = if failure.is_some() { "FAILED" } else { "held" };
        let why = failure.as_ref().map(|why| format!("   {why}")).unwrap_or_default();
        let _ = writeln!(text, "{name:<8} {result:<6} {:>7.1} s{why}", time.as_secs_f64());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_is_named_with_its_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 7"]);
        let report = Check { name: "doomed", command }.run().expect("sh starts");
        let text = summary(&[report]);
        assert!(text.contains("doomed   FAILED"), "{text}");
        assert!(text.contains("exit status: 7"), "{text}");
    }

    #[test]
    fn a_step_that_succeeds_held() {
        let report = Check { name: "fine", command: Command::new("true") }.run().expect("starts");
        assert!(report.failure.is_none());
    }

    #[test]
    fn only_folders_with_python_tests_are_found() {
        let root = tempfile::tempdir().expect("a temporary folder");
        for file in ["oracles/a/test_x.py", "oracles/a/b/helper.py", "oracles/c/d/test_y.py"] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            std::fs::write(path, "").expect("written");
        }
        let layout = Layout::at(root.path());
        let want = ["oracles/a", "oracles/c/d"].map(|folder| layout.join(folder));
        assert_eq!(python_test_folders(&layout).expect("readable"), want);
    }
}
