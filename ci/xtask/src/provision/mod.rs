//! What setup puts under `target/mlx`, one file per step. A step runs only where its inputs changed
//! ([`step`]), and one setup at a time ([`lock`]).

mod bindings;
mod cargo_config;
mod lock;
mod mlxc;
mod models;
mod step;
mod tools;
mod venv;

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout::{Layout, Platform};

use lock::Lock;
use step::Step;
use tools::Tools;

/// What to provision and how.
#[derive(Debug, Default)]
pub struct Options {
    /// Also the models that are too large for every run.
    pub large_models: bool,
    /// Nothing is downloaded.
    pub offline: bool,
    /// Steps that are current are named too.
    pub verbose: bool,
}

/// What every step works with.
struct Session<'a> {
    layout: &'a Layout,
    options: &'a Options,
    lock: Lock,
}

impl Session<'_> {
    /// A command that holds the setup lock for as long as it lives: when setup is killed, the next
    /// one waits until pip or a compiler that was left behind has ended.
    fn command(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        let mut command = Command::new(program);
        command.stdin(self.lock.as_stdin()?);
        Ok(command)
    }

    fn ensure(&self, step: &Step, make: impl FnOnce() -> Result<()>) -> Result<()> {
        step.ensure(self.options.verbose, make)
    }
}

/// Brings everything under `target/mlx` up to date.
pub fn run(layout: &Layout, options: &Options) -> Result<()> {
    let platform = Platform::current()?;
    let mlx = layout.mlx();
    fs::create_dir_all(&mlx).with_context(|| format!("cannot create {}", mlx.display()))?;
    let session = Session { layout, options, lock: Lock::acquire(&mlx.join("lock"))? };
    let venv = match platform {
        Platform::LinuxX86 => linux(&session)?,
        Platform::MacArm => mac(&session)?,
    };
    session.ensure(&models::small(&session, &venv)?, || models::make_small(&session))?;
    if options.large_models {
        session.ensure(&models::large(&session, &venv)?, || models::make_large(&session))?;
    }
    Ok(())
}

/// libmlx from the Python package, mlx-c compiled against it.
fn linux(session: &Session) -> Result<Step> {
    let venv = venv::step(session)?;
    let mlxc = mlxc::step(session, &venv)?;
    let bindings = bindings::step(session)?;
    // Everything that is missing is named before anything is downloaded.
    let tools = needed_tools(Platform::LinuxX86, &[&venv, &mlxc, &bindings])?;
    session.ensure(&venv, || venv::make(session, tools.python()?))?;
    session.ensure(&mlxc, || mlxc::make(session, tools.cxx()?, &mlxc))?;
    session.ensure(&bindings, || bindings::make(session, tools.cxx()?))?;
    cargo_config::write(session)?;
    Ok(venv)
}

/// mlx-sys builds MLX itself; only the oracles are provisioned.
fn mac(session: &Session) -> Result<Step> {
    let venv = venv::step(session)?;
    let tools = needed_tools(Platform::MacArm, &[&venv])?;
    session.ensure(&venv, || venv::make(session, tools.python()?))?;
    Ok(venv)
}

/// Looks for the tools unless every step is current.
fn needed_tools(platform: Platform, steps: &[&Step]) -> Result<Tools> {
    if steps.iter().all(|step| step.is_current()) {
        return Ok(Tools::default());
    }
    Tools::find(platform)
}
