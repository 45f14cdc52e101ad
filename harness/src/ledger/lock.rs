//! One process at a time changes a ledger.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use super::StoreError;

/// Time another process has to finish: it writes two small files.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A lock that ends with its process, however that ends.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "held until it is dropped")] File);

impl Lock {
    /// Waits for the lock of a ledger.
    pub(super) fn take(ledger: &Path) -> Result<Self, StoreError> {
        let path = ledger.with_extension("toml.lock");
        let io = |source| StoreError::Io { action: "lock", path: path.clone(), source };
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(io)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::Error(source)) => return Err(io(source)),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => {
                    return Err(StoreError::Held { path });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        }
    }
}
