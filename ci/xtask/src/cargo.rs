//! What Cargo knows about the workspace.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::layout::Layout;
use crate::process;

/// `cargo`, in the workspace root.
pub fn command(layout: &Layout) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(layout.root());
    command
}

/// The folder that holds the sources of package `name`, downloaded if need be.
pub fn package_sources(layout: &Layout, name: &str, offline: bool) -> Result<PathBuf> {
    let mut metadata = command(layout);
    metadata.args(["metadata", "--format-version=1"]);
    if offline {
        metadata.arg("--offline");
    }
    let json = process::capture(&mut metadata, "finding the package's sources")?;
    let metadata: WireMetadata =
        serde_json::from_str(&json).context("cargo metadata: not the known JSON")?;
    let package = metadata.packages.into_iter().find(|p| p.name == name);
    let package = package.with_context(|| format!("Cargo.lock: holds no package {name}"))?;
    let folder = package.manifest_path.parent().map(PathBuf::from);
    folder.with_context(|| format!("{}: has no parent", package.manifest_path.display()))
}

/// Version and checksum of package `name` in `Cargo.lock`.
pub fn locked(layout: &Layout, name: &str) -> Result<String> {
    let path = layout.join("Cargo.lock");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lock: WireLock = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let package = lock.package.into_iter().find(|p| p.name == name);
    let package = package.with_context(|| format!("{}: holds no {name}", path.display()))?;
    Ok(format!("{} {}", package.version, package.checksum.unwrap_or_default()))
}

#[derive(Deserialize)]
struct WireMetadata {
    packages: Vec<WirePackage>,
}

#[derive(Deserialize)]
struct WirePackage {
    name: String,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct WireLock {
    package: Vec<WireLocked>,
}

#[derive(Deserialize)]
struct WireLocked {
    name: String,
    version: String,
    checksum: Option<String>,
}
