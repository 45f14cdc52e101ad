//! One worker process, as its parent sees it.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command as Process, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use super::{Command, Job, Message};
use crate::{
    fingerprint::Fingerprint,
    pipe::{Log, read_lines},
    row::Row,
};

/// Time a worker has to load MLX and say where it computes.
const GREETING_LIMIT: Duration = Duration::from_mins(1);

/// Time a worker has to replay a case with intermediates.
const TAP_LIMIT: Duration = Duration::from_mins(5);

/// Lines of its log quoted when a worker dies.
const QUOTED_LINES: usize = 4;

/// A worker that cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The binary could not be started.
    #[error("cannot start a worker from {path}: {source}")]
    Start {
        /// The binary.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It did not say where it computes.
    #[error("a worker cannot start its engine: {0}")]
    NoGreeting(String),
}

/// Why a command was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The worker cannot do it, and goes on.
    #[error("{0}")]
    Refused(String),
    /// The worker is gone: `SIGSEGV`, `exit status: 3`, `no answer in 120 s` …
    #[error("{0}")]
    Died(String),
}

/// How a case ended in a worker.
#[derive(Debug)]
pub enum Ended {
    /// All its rows were given.
    Complete,
    /// The worker is gone; `how` says `SIGSEGV`, `exit status: 3`, `no answer in 120 s` …
    Died {
        /// The cause.
        how: String,
    },
}

/// A running worker.
pub struct Worker {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<String>,
    log: Log,
    fingerprint: Fingerprint,
}

impl Worker {
    /// Starts `program worker` and waits for its greeting.
    pub fn start(program: &Path) -> Result<Self, WorkerError> {
        let failed = |source| WorkerError::Start { path: program.into(), source };
        let mut child = Process::new(program)
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let piped = || failed(std::io::Error::other("a pipe is missing"));
        let commands = child.stdin.take().ok_or_else(piped)?;
        let messages = read_lines(child.stdout.take().ok_or_else(piped)?);
        let log = Log::of(child.stderr.take().ok_or_else(piped)?);
        let greeting = messages.recv_timeout(GREETING_LIMIT);
        let fingerprint = match greeting.map(|line| serde_json::from_str(&line)) {
            Ok(Ok(Message::Hello(fingerprint))) => fingerprint,
            Ok(Ok(Message::Broken(message))) => return Err(WorkerError::NoGreeting(message)),
            Ok(_) => return Err(WorkerError::NoGreeting("it wrote no greeting".into())),
            Err(_) => {
                let how = how_it_ended(&mut child, &log);
                return Err(WorkerError::NoGreeting(how));
            }
        };
        Ok(Self { child, commands, messages, log, fingerprint })
    }

    /// Where it computes.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Its process, for tests that end it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs one case; every row goes to `emit` as it comes. `limit` bounds the whole case.
    pub fn run(&mut self, job: &Job, limit: Duration, mut emit: impl FnMut(Row)) -> Ended {
        if let Err(how) = self.send(&Command::Run(Box::new(job.clone()))) {
            return Ended::Died { how };
        }
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = match self.messages.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => {
                    return Ended::Died { how: how_it_ended(&mut self.child, &self.log) };
                }
                Err(RecvTimeoutError::Timeout) => {
                    return self.end(format!("no answer in {} s, ended", limit.as_secs_f64()));
                }
            };
            match serde_json::from_str(&line) {
                Ok(Message::Row(row)) => emit(*row),
                Ok(Message::Done) => return Ended::Complete,
                Ok(Message::Hello(_) | Message::Broken(_)) | Err(_) => {
                    let line: String = line.chars().take(80).collect();
                    return self.end(format!("it wrote `{line}` where a row was due"));
                }
            }
        }
    }

    /// Sends a command that writes a file and waits until it is written.
    pub fn tap(&mut self, command: &Command) -> Result<(), String> {
        self.ask(command, TAP_LIMIT).map_err(|error| error.to_string())
    }

    /// Sends a command that is answered by one line, and waits for it at most `limit`. A worker that
    /// died answers no later one.
    pub fn ask(&mut self, command: &Command, limit: Duration) -> Result<(), AskError> {
        self.send(command).map_err(AskError::Died)?;
        let line = match self.messages.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(AskError::Died(how_it_ended(&mut self.child, &self.log)));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(self.died(format!("no answer in {} s, ended", limit.as_secs_f64())));
            }
        };
        match serde_json::from_str(&line) {
            Ok(Message::Done) => Ok(()),
            Ok(Message::Broken(message)) => Err(AskError::Refused(message)),
            _ => {
                let line: String = line.chars().take(80).collect();
                Err(self.died(format!("it wrote `{line}` where an answer was due")))
            }
        }
    }

    fn died(&mut self, how: String) -> AskError {
        self.stop();
        AskError::Died(how)
    }

    fn send(&mut self, command: &Command) -> Result<(), String> {
        let command = serde_json::to_string(command)
            .map_err(|error| format!("its command cannot be written: {error}"))?;
        writeln!(self.commands, "{command}")
            .and_then(|()| self.commands.flush())
            .map_err(|_| how_it_ended(&mut self.child, &self.log))
    }

    fn end(&mut self, how: String) -> Ended {
        self.stop();
        Ended::Died { how }
    }

    fn stop(&mut self) {
        // A process that is gone already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Asks a fresh worker where it computes.
pub fn probe(program: &Path) -> Result<Fingerprint, WorkerError> {
    Worker::start(program).map(|worker| worker.fingerprint().clone())
}

/// How a worker ended, with the last lines of its log.
pub(crate) fn how_it_ended(child: &mut Child, log: &Log) -> String {
    let how = child.wait().map_or_else(|error| error.to_string(), describe);
    let tail = log.tail(QUOTED_LINES);
    if tail.is_empty() { how } else { format!("{how}: {}", tail.join(" / ")) }
}

/// `SIGSEGV` for a signal (the standard library knows the names), else `exit status: 3`.
fn describe(status: ExitStatus) -> String {
    let text = status.to_string();
    let name = text.split(['(', ')']).find(|part| part.starts_with("SIG")).map(str::to_owned);
    name.unwrap_or(text)
}
