//! What setup puts under `target/mlx`, one file per step. A step runs only where its inputs changed
//! ([`step`]), and one setup at a time ([`lock`]).

mod bindings;
mod cargo_config;
mod lock;
mod mlxc;
mod step;
mod tools;
mod venv;

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout::{Layout, Platform};

use lock::Lock;
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
}

/// Brings everything under `target/mlx` up to date.
pub fn run(layout: &Layout, options: &Options) -> Result<()> {
    let platform = Platform::current()?;
    let mlx = layout.mlx();
    fs::create_dir_all(&mlx).with_context(|| format!("cannot create {}", mlx.display()))?;
    let session = Session { layout, options, lock: Lock::acquire(&mlx.join("lock"))? };
    match platform {
        Platform::LinuxX86 => linux(&session),
        Platform::MacArm => mac(&session),
    }
}

fn linux(session: &Session) -> Result<()> {
    let venv = venv::step(session)?;
    let mlxc = mlxc::step(session, &venv)?;
    let bindings = bindings::step(session)?;
    // Everything missing is named before anything is downloaded.
    let tools = match [&venv, &mlxc, &bindings].iter().all(|step| step.is_current()) {
        true => None,
        false => Some(Tools::find(Platform::LinuxX86)?),
    };
    if let Some(tools) = tools {
        venv.ensure(session, || venv::make(session, &tools.python))?;
        mlxc.ensure(session, || mlxc::make(session, &tools.cxx, &mlxc))?;
        bindings.ensure(session, || bindings::make(session, &tools.cxx))?;
    } else {
        [&venv, &mlxc, &bindings].iter().for_each(|step| step.report_current(session));
    }
    cargo_config::write(session, &mlxc, &bindings)
}

fn mac(session: &Session) -> Result<()> {
    let venv = venv::step(session)?;
    if venv.is_current() {
        venv.report_current(session);
        return Ok(());
    }
    let tools = Tools::find(Platform::MacArm)?;
    venv.ensure(session, || venv::make(session, &tools.python))
}
