//! `cargo xtask fuzz`: every fuzz target of `ci/fuzz` for a while. Needs `cargo install cargo-fuzz`.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::layout::Layout;
use crate::process;

/// Fuzz the readers of files people write.
#[derive(clap::Args)]
pub struct Fuzz {
    /// Seconds for each target
    #[arg(default_value_t = 120)]
    seconds: u32,
}

impl Fuzz {
    /// Fails where a target finds an input that breaks a reader; the input stays under `ci/fuzz/artifacts`.
    pub fn run(self) -> Result<ExitCode> {
        let layout = Layout::locate()?;
        let folder = layout.root().join("ci/fuzz");
        let listed = command(&folder, "list", &[]).output().context("cannot start cargo")?;
        ensure!(listed.status.success(), "cargo fuzz is missing: `cargo install cargo-fuzz`");
        let mut code = ExitCode::SUCCESS;
        for target in String::from_utf8(listed.stdout)?.lines() {
            let limit = format!("-max_total_time={}", self.seconds);
            let mut run = command(&folder, "run", &["--sanitizer", "none", target, "--", &limit]);
            eprintln!("\n── {target}: {}", process::shown(&run));
            if !run.status().context("cannot start cargo fuzz")?.success() {
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}

/// The readers are safe Rust, so no sanitizer is needed; what is left of nightly features the stable
/// compiler has under this variable.
fn command(folder: &Path, verb: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["fuzz", verb, "--fuzz-dir"]).arg(folder).args(arguments);
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}
