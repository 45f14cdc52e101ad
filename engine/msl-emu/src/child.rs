//! A child process with a time limit; no shell, no input.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::EmuError;

/// Runs `command` with its messages going to the file `messages`; `None` when it had to be killed at the limit.
pub(crate) fn run(
    command: &mut Command,
    messages: &Path,
    limit: Duration,
) -> Result<Option<ExitStatus>, EmuError> {
    let fail = |doing, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| EmuError::Io { doing, path, source }
    };
    let program = Path::new(command.get_program()).to_owned();
    let log = File::create(messages).map_err(fail("writing", messages))?;
    let both = log.try_clone().map_err(fail("writing", messages))?;
    command.stdin(Stdio::null()).stdout(both).stderr(log);
    let mut child = command.spawn().map_err(fail("starting", &program))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(fail("waiting for", &program))? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill().map_err(fail("ending", &program))?;
            child.wait().map_err(fail("waiting for", &program))?;
            return Ok(None);
        }
        let past = start.elapsed();
        sleep(if past < Duration::from_millis(50) {
            Duration::from_millis(1)
        } else {
            Duration::from_millis(5)
        });
    }
}

/// What a child wrote, at most its last 64 KiB.
pub(crate) fn messages(path: &Path) -> String {
    const KEPT: usize = 64 << 10;
    let bytes = fs::read(path).unwrap_or_default();
    let from = bytes.len().saturating_sub(KEPT);
    String::from_utf8_lossy(&bytes[from..]).into_owned()
}
