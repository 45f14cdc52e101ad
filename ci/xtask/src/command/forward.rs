//! `cargo xtask verify|bench|doctor`: provision, then run the tool with the same arguments.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

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

/// Provision what is missing, then run `cargo bench` over the workspace.
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
        forward(&["run", "--quiet", "--package", "mlx-parity", "--", "verify"], &self.args)
    }
}

impl Bench {
    /// Exits as Cargo does.
    pub fn run(self) -> Result<ExitCode> {
        forward(&["bench", "--workspace"], &self.args)
    }
}

impl Doctor {
    /// Exits as the tool does.
    pub fn run(self) -> Result<ExitCode> {
        forward(&["run", "--quiet", "--package", "mlx-parity", "--", "doctor"], &self.args)
    }
}

fn forward(before: &[&str], args: &[OsString]) -> Result<ExitCode> {
    let layout = Layout::locate()?;
    provision::run(&layout, &Options::default())?;
    let mut command = cargo::command(&layout);
    command.args(before).args(args);
    exit_code(&mut command)
}

/// Runs `command` with this process's own streams and returns its exit code.
fn exit_code(command: &mut Command) -> Result<ExitCode> {
    let status =
        command.status().with_context(|| format!("cannot start {}", process::shown(command)))?;
    let code = status.code().with_context(|| format!("{}: {status}", process::shown(command)))?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}
