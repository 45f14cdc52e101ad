//! `cargo xtask setup`.

use std::process::ExitCode;

use anyhow::Result;

use crate::layout::Layout;
use crate::provision::{self, Options};

/// Provision this machine: the oracles' Python, mlx-c, bindings, and small models.
#[derive(clap::Args)]
pub struct Setup {
    /// Also provision SmolLM2-135M (a download of 98 MB, 540 MB on disk)
    #[arg(long)]
    models: bool,
    /// Use only what is on this machine; wheels may lie in target/mlx/wheels
    #[arg(long)]
    offline: bool,
}

impl Setup {
    /// Runs every step that is not current.
    pub fn run(self) -> Result<ExitCode> {
        let options = Options { large_models: self.models, offline: self.offline, verbose: true };
        provision::run(&Layout::locate()?, &options)?;
        Ok(ExitCode::SUCCESS)
    }
}
