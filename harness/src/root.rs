//! Where the project's files are.

use std::path::{Path, PathBuf};

/// A checkout (or a user's own folder) with a `goldens/` in it.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

/// No `goldens/models.toml` at or above the starting folder.
#[derive(Debug, thiserror::Error)]
#[error("no goldens/models.toml in {0} or a folder above it; name the project with --root")]
pub struct NoRoot(PathBuf);

impl Root {
    /// The given folder, or the nearest one at or above the current folder that holds `goldens/models.toml`.
    pub fn find(explicit: Option<&Path>) -> Result<Self, NoRoot> {
        if let Some(dir) = explicit {
            let root = Self(dir.to_path_buf());
            return if root.models_file().is_file() { Ok(root) } else { Err(NoRoot(dir.into())) };
        }
        let start = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        start
            .ancestors()
            .map(|dir| Self(dir.to_path_buf()))
            .find(|root| root.models_file().is_file())
            .ok_or(NoRoot(start))
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `goldens/models.toml`.
    pub fn models_file(&self) -> PathBuf {
        self.0.join("goldens/models.toml")
    }

    /// `goldens/synthetic`: a folder for each synthetic model.
    pub fn synthetic(&self) -> PathBuf {
        self.0.join("goldens/synthetic")
    }

    /// `goldens/cases`.
    pub fn cases(&self) -> PathBuf {
        self.0.join("goldens/cases")
    }

    /// `goldens/expectations.toml`.
    pub fn expectations_file(&self) -> PathBuf {
        self.0.join("goldens/expectations.toml")
    }

    /// `goldens/tolerances.toml`.
    pub fn tolerances_file(&self) -> PathBuf {
        self.0.join("goldens/tolerances.toml")
    }

    /// `goldens/gate.toml`: the models that the gate asks.
    pub fn gate_file(&self) -> PathBuf {
        self.0.join("goldens/gate.toml")
    }

    /// `goldens/ledger.toml`: accepted decisions about kernels.
    pub fn ledger_file(&self) -> PathBuf {
        self.0.join("goldens/ledger.toml")
    }

    /// Committed goldens.
    pub fn frozen(&self) -> PathBuf {
        self.0.join("goldens/frozen")
    }

    /// Goldens frozen on this machine for this machine, not committed.
    pub fn live(&self) -> PathBuf {
        self.0.join("target/mlx/live")
    }

    /// Teachers' logits, kept so that they are computed once.
    pub fn teachers(&self) -> PathBuf {
        self.0.join("target/mlx/teachers")
    }

    /// Recorded runs.
    pub fn record(&self) -> PathBuf {
        self.0.join("reports/record")
    }

    /// Kernels compiled for emulation, by content.
    pub fn emulated(&self) -> PathBuf {
        self.0.join("target/mlx/emulated")
    }

    /// The folders of MLX's own Metal headers, where MLX is installed.
    pub fn metal_headers(&self) -> Vec<PathBuf> {
        let lib = self.0.join("target/mlx/venv/lib");
        let pythons = std::fs::read_dir(lib).into_iter().flatten().flatten();
        let headers = pythons.map(|python| python.path().join("site-packages/mlx/include"));
        headers.filter(|folder| folder.join("mlx/backend/metal/kernels").is_dir()).collect()
    }

    /// The Python of the oracle's environment, made by `cargo xtask setup`.
    pub fn oracle_python(&self) -> PathBuf {
        self.0.join("target/mlx/venv/bin/python")
    }

    /// `path` as seen from the project, for messages and manifests.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.0).unwrap_or(path).display().to_string()
    }
}
