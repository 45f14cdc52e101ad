//! `cargo xtask verify|bench|doctor`: provision, then run the tool with the same arguments.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::layout::Layout;
use crate::process;
use crate::provision::{self, Options};

/// Provision what is missing, then run `mlx-parity verify`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Verify {
    /// Passed on unchanged
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Provision what is missing, then run `cargo bench` over the workspace, or, after `decode` or `caches`, the
/// bench of that name beside mlx-lm with the arguments that follow.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Bench {
    /// Passed on unchanged
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Provision what is missing, then run `mlx-parity doctor`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Doctor {
    /// Passed on unchanged
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

impl Verify {
    /// Exits as the tool does.
    pub fn run(self) -> Result<ExitCode> {
        tool("verify", &self.args)
    }
}

impl Doctor {
    /// Exits as the tool does.
    pub fn run(self) -> Result<ExitCode> {
        tool("doctor", &self.args)
    }
}

impl Bench {
    /// Exits as Cargo does.
    pub fn run(self) -> Result<ExitCode> {
        let layout = provisioned()?;
        let mut bench = cargo::command(&layout);
        match self.args.split_first() {
            Some((first, rest)) if first == "decode" || first == "caches" => {
                bench.args(["bench", "--package", "mlx-parity", "--bench"]);
                exit_code(bench.arg(first).arg("--").args(rest))
            }
            _ => exit_code(bench.args(["bench", "--workspace"]).args(&self.args)),
        }
    }
}

fn tool(verb: &str, args: &[OsString]) -> Result<ExitCode> {
    let layout = provisioned()?;
    // Built apart from the run: Cargo's exit code for a failed build, 101, has a meaning of its own
    // in the tool.
    let mut build = cargo::command(&layout);
    let status = build.args(["build", "--package", "mlx-parity"]).status();
    ensure!(status.context("cannot start cargo")?.success(), "mlx-parity cannot be built");
    let mut run = cargo::command(&layout);
    run.args(["run", "--quiet", "--package", "mlx-parity", "--", verb]);
    exit_code(run.args(args))
}

fn provisioned() -> Result<Layout> {
    let layout = Layout::locate()?;
    provision::run(&layout, &Options::default())?;
    Ok(layout)
}

/// Runs `command` with this process's own streams and returns its exit code.
fn exit_code(command: &mut Command) -> Result<ExitCode> {
    let status =
        command.status().with_context(|| format!("cannot start {}", process::shown(command)))?;
    let code = status.code().with_context(|| format!("{}: {status}", process::shown(command)))?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn shell(script: &str) -> Result<ExitCode> {
        exit_code(Command::new("sh").args(["-c", script]))
    }

    #[rstest]
    fn an_exit_code_passes_through_unchanged(#[values(0, 1, 2, 4, 100, 101, 102, 103)] code: u8) {
        let got = shell(&format!("exit {code}")).expect("sh starts");
        assert_eq!(format!("{got:?}"), format!("{:?}", ExitCode::from(code)));
    }

    #[test]
    fn a_death_by_signal_is_an_error_that_names_it() {
        let error = shell("kill -9 $$").expect_err("it was killed").to_string();
        assert!(error.contains("signal: 9"), "{error}");
    }
}
