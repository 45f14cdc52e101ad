//! Where everything lies.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The paths of one checkout. Provisioned files are always under `<root>/target/mlx`, whatever
/// `CARGO_TARGET_DIR` says, because the committed `.cargo/config.toml` includes them from there.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The checkout that holds the running xtask's package.
    pub fn locate() -> Result<Self> {
        // Cargo sets the variable for `cargo run`; the compile-time value serves a binary run by hand.
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package.join("../..");
        let root =
            root.canonicalize().with_context(|| format!("no workspace at {}", root.display()))?;
        Ok(Self { root })
    }

    /// The checkout at `root`.
    #[cfg(test)]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The workspace root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path below the workspace root.
    pub fn join(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The folder of everything provisioned.
    pub fn mlx(&self) -> PathBuf {
        self.join("target/mlx")
    }

    /// The Python environment of the oracles.
    pub fn venv(&self) -> PathBuf {
        self.mlx().join("venv")
    }

    /// The interpreter of the oracles.
    pub fn python(&self) -> PathBuf {
        self.venv().join("bin/python")
    }

    /// Where `--offline` looks for wheels, and where the packages that hold models are kept.
    pub fn wheels(&self) -> PathBuf {
        self.mlx().join("wheels")
    }

    /// The folder of `libmlxc.a`.
    pub fn lib(&self) -> PathBuf {
        self.mlx().join("lib")
    }

    /// A link to the folder of `libmlx.so` inside the environment; binaries carry it as RUNPATH.
    pub fn libmlx(&self) -> PathBuf {
        self.mlx().join("libmlx")
    }

    /// The folder of `bindings.rs`.
    pub fn bindings(&self) -> PathBuf {
        self.mlx().join("bindings")
    }

    /// The folder of converted models.
    pub fn models(&self) -> PathBuf {
        self.mlx().join("models")
    }

    /// The environment's `site-packages`, whose path holds the interpreter's version.
    pub fn site_packages(&self) -> Result<PathBuf> {
        let lib = self.venv().join("lib");
        let entries = lib.read_dir().with_context(|| format!("cannot read {}", lib.display()))?;
        let mut found =
            entries.flatten().map(|e| e.path().join("site-packages")).filter(|p| p.is_dir());
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => bail!("{}: holds no python3.*/site-packages", lib.display()),
            (Some(_), Some(_)) => bail!("{}: holds two python3.*/site-packages", lib.display()),
        }
    }
}

/// The machines that can be provisioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// `libmlx` comes from the Python package; mlx-c is compiled here.
    LinuxX86,
    /// mlx-sys builds MLX itself, with Metal and Accelerate.
    MacArm,
}

impl Platform {
    /// The platform of this process.
    pub fn current() -> Result<Self> {
        match (env::consts::OS, env::consts::ARCH) {
            ("linux", "x86_64") => Ok(Self::LinuxX86),
            ("macos", "aarch64") => Ok(Self::MacArm),
            (os, arch) => bail!(
                "{os} on {arch} is not supported: found neither Linux x86-64 nor macOS arm64; \
                 without MLX, `cargo build -p mlx-parity --no-default-features` works here"
            ),
        }
    }
}
