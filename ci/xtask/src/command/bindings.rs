//! `cargo xtask bindings`, a step of setup in a process of its own: bindgen finds libclang through
//! the `LIBCLANG_PATH` variable, which only a parent can set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Generate Rust declarations of the mlx-c headers.
#[derive(clap::Args)]
pub struct Bindings {
    /// The folder that holds `mlx/c/*.h`
    #[arg(long)]
    mlx_c: PathBuf,
    /// The folder of the compiler's own headers, which libclang's package lacks
    #[arg(long)]
    builtin_headers: PathBuf,
    /// Rust source to append
    #[arg(long)]
    append: PathBuf,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

impl Bindings {
    /// Writes the file.
    pub fn run(self) -> Result<ExitCode> {
        let builder = bindgen::Builder::default()
            .clang_arg(format!("-I{}", self.mlx_c.display()))
            .clang_arg(format!("-isystem{}", self.builtin_headers.display()))
            .formatter(bindgen::Formatter::Prettyplease)
            // They come from <stdlib.h>, and rustc warns of their `c_ulong` sizes.
            .blocklist_function("malloc")
            .blocklist_function("realloc");
        let builder = headers(&self.mlx_c.join("mlx/c"))?
            .iter()
            .fold(builder, |builder, header| builder.header(header.to_string_lossy()));
        let bindings = builder.generate().context("bindgen cannot read the mlx-c headers")?;
        let append = fs::read_to_string(&self.append)
            .with_context(|| format!("cannot read {}", self.append.display()))?;
        fs::write(&self.out, format!("{bindings}\n{append}"))
            .with_context(|| format!("cannot write {}", self.out.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn headers(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let mut headers: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    headers.retain(|path| path.extension().is_some_and(|ext| ext == "h"));
    headers.sort();
    Ok(headers)
}
