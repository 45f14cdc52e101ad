//! `bindings.rs`: what mlx-sys's own build script would generate, plus the half types.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cargo;
use crate::process;

use super::Session;
use super::mlxc::sources_of_mlx_c;
use super::step::{Inputs, Step};

/// Declarations that the C headers lack on x86-64.
const HALF: &str = "ci/native/half.rs";

/// The step; its output is the file.
pub fn step(session: &Session) -> Result<Step> {
    let layout = session.layout;
    let inputs = Inputs::default()
        .text("mlx-sys", &cargo::locked(layout, "mlx-sys")?)
        .text("bindgen", &cargo::locked(layout, "bindgen")?)
        .file(&layout.join("ci/xtask/src/command/bindings.rs"))?
        .file(&layout.join(HALF))?;
    Ok(Step::new(&layout.mlx(), "bindings", inputs, vec![layout.bindings().join("bindings.rs")]))
}

/// Runs this program's `bindings` command with libclang from the environment.
pub fn make(session: &Session, cxx: &Path) -> Result<()> {
    let layout = session.layout;
    let folder = layout.bindings();
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let part = folder.join("bindings.rs.part");
    let mut generate = session.command(env::current_exe().context("where is xtask?")?)?;
    generate
        .env("LIBCLANG_PATH", layout.site_packages()?.join("clang/native"))
        .arg("bindings")
        .arg("--mlx-c")
        .arg(sources_of_mlx_c(session)?)
        .arg("--builtin-headers")
        .arg(builtin_headers(session, cxx)?)
        .arg("--append")
        .arg(layout.join(HALF))
        .arg("--out")
        .arg(&part);
    process::capture(&mut generate, "generating bindings.rs")?;
    fs::rename(&part, folder.join("bindings.rs")).context("cannot rename bindings.rs.part")
}

/// The compiler's own headers (`stddef.h`, …): the libclang package has none.
fn builtin_headers(session: &Session, cxx: &Path) -> Result<PathBuf> {
    let mut ask = session.command(cxx)?;
    ask.arg("-print-file-name=include");
    let folder = process::capture(&mut ask, "asking the compiler for its headers")?;
    Ok(PathBuf::from(folder.trim()))
}
