//! The Python environment of the oracles, which also brings `libmlx.so` and libclang on Linux.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout::Platform;
use crate::process;

use super::Session;
use super::step::{Inputs, Step};

/// Hash-pinned packages with all that they need.
const LOCK: &str = "oracles/requirements.lock";
/// mlx-optiq alone: what it declares to need is a server's.
const LOCK_NO_DEPS: &str = "oracles/requirements-optiq.lock";

/// The step; its outputs are the interpreter and, on Linux, the link to `libmlx.so`.
pub fn step(session: &Session) -> Result<Step> {
    let layout = session.layout;
    let inputs = Inputs::default()
        // An environment holds absolute paths: a checkout that moved needs a new one.
        .text("root", &layout.root().to_string_lossy())
        .file(&layout.join(LOCK))?
        .file(&layout.join(LOCK_NO_DEPS))?;
    let mut outputs = vec![layout.python()];
    if Platform::current()? == Platform::LinuxX86 {
        outputs.push(layout.libmlx().join("libmlx.so"));
    }
    Ok(Step::new(&layout.mlx(), "venv", inputs, outputs))
}

/// Makes the environment anew; one that was left half made is removed first.
pub fn make(session: &Session, python: &Path) -> Result<()> {
    let layout = session.layout;
    let venv = layout.venv();
    remove_all(&venv)?;
    let mut create = session.command(python)?;
    isolate(create.args(["-m", "venv"]).arg(&venv));
    process::capture(&mut create, "making the Python environment")?;
    install(session, LOCK, &[])?;
    install(session, LOCK_NO_DEPS, &["--no-deps"])?;
    if Platform::current()? == Platform::LinuxX86 {
        link_libmlx(session)?;
    }
    Ok(())
}

/// Installs what `lock` lists, checking every hash and building nothing from source.
pub fn install(session: &Session, lock: &str, extra: &[&str]) -> Result<()> {
    let mut pip = pip(session, "install", lock)?;
    pip.args(extra);
    process::capture(&mut pip, &format!("installing {lock}{}", offline_note(session)))?;
    Ok(())
}

/// `pip VERB` of the packages in `lock`, from `target/mlx/wheels` alone where setup is offline.
pub fn pip(session: &Session, verb: &str, lock: &str) -> Result<Command> {
    let layout = session.layout;
    let mut pip = session.command(layout.python())?;
    isolate(&mut pip);
    pip.args(["-m", "pip", verb, "--quiet", "--disable-pip-version-check", "--no-input"]);
    pip.args(["--require-hashes", "--only-binary=:all:", "--requirement"]).arg(layout.join(lock));
    if session.options.offline {
        pip.args(["--no-index", "--find-links"]).arg(layout.wheels());
    }
    Ok(pip)
}

/// What to add to an error where `--offline` may be its cause.
pub fn offline_note(session: &Session) -> String {
    if !session.options.offline {
        return String::new();
    }
    format!(
        " offline (put the wheels it lists into {}, or run setup once without --offline)",
        session.layout.wheels().display()
    )
}

/// Keeps a person's own Python settings out of the environment.
fn isolate(command: &mut Command) -> &mut Command {
    for variable in ["PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"] {
        command.env_remove(variable);
    }
    command
}

/// Gives `libmlx.so` a path without the interpreter's version in it.
fn link_libmlx(session: &Session) -> Result<()> {
    let layout = session.layout;
    let (link, target) = (layout.libmlx(), layout.site_packages()?.join("mlx/lib"));
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
    }
    symlink(&target, &link).with_context(|| format!("cannot link {}", link.display()))
}

/// Removes a folder where there is one.
pub fn remove_all(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}
