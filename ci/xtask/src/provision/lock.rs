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

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::step::{Inputs, Step};
    use super::*;

    #[test]
    fn of_two_setups_at_once_one_does_the_work() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (mlx, runs) = (folder.path(), AtomicU32::new(0));
        let setup = || {
            let _lock = Lock::acquire(&mlx.join("lock")).expect("locked");
            let step = Step::new(mlx, "slow", Inputs::default(), vec![mlx.join("out")]);
            let make = || {
                runs.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(200));
                Ok(std::fs::write(mlx.join("out"), "")?)
            };
            step.ensure(false, make).expect("made");
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(setup))));
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }

    /// Setup that is killed cannot end its children; the next one waits for them.
    #[test]
    fn a_child_left_behind_keeps_the_lock() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lock");
        let lock = Lock::acquire(&path).expect("locked");
        let start = Instant::now();
        let mut sleep = Command::new("sleep");
        let mut orphan =
            sleep.arg("1").stdin(lock.as_stdin().expect("cloned")).spawn().expect("sleep starts");
        drop((lock, sleep));
        drop(Lock::acquire(&path).expect("locked"));
        assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
        orphan.wait().expect("it ended");
    }
}
