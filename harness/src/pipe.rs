//! Reading the pipes of a child process on threads of their own.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Time a dead child's last lines have to arrive.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Lines of a pipe through a channel, so that waiting for one can have a limit.
pub(crate) fn read_lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// What a child wrote to stderr, also passed to the debug log.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl Log {
    /// Collects the lines of a pipe until it closes.
    pub(crate) fn of(pipe: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                tracing::debug!(target: "child", "{line}");
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { lines, reader }
    }

    /// The last `count` lines of a child that has ended; waits a moment for its last words, not for
    /// ever, since a grandchild may hold the pipe open.
    pub(crate) fn tail(&self, count: usize) -> Vec<String> {
        let patience = Instant::now() + LAST_WORDS;
        while !self.reader.is_finished() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(2));
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines[lines.len().saturating_sub(count)..].to_vec()
    }
}
