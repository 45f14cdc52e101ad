//! One setup at a time.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};

/// A lock on a file, held until the value and every child that got it as standard input are gone.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Waits for the lock on `path`; says so where another setup holds it.
    pub fn acquire(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => return Ok(Self { file }),
            Err(TryLockError::WouldBlock) => {
                eprintln!("another setup is at work here; waiting for it to end");
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self { file })
    }

    /// The lock as a child's standard input, which reads as an empty file.
    pub fn as_stdin(&self) -> Result<Stdio> {
        Ok(Stdio::from(self.file.try_clone().context("cannot pass the setup lock on")?))
    }
}
