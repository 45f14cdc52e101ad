//! One oracle process and the conversation with it.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use serde_json::Value;

use super::{
    OracleError,
    protocol::{Answer, Hello, PROTOCOL, Request},
};
use crate::{
    pipe::{Log, read_lines},
    root::Root,
};

/// Lines of its log quoted when an oracle dies.
const QUOTED_LINES: usize = 6;
/// Characters of a garbage line quoted.
const QUOTED_CHARS: usize = 80;

/// How to start an oracle.
#[derive(Debug, Clone)]
pub struct Launch {
    /// `mlx-lm`.
    pub name: String,
    /// The interpreter.
    pub program: PathBuf,
    /// The runner script.
    pub script: PathBuf,
    /// Limit for one answer.
    pub limit: Duration,
}

impl Launch {
    /// The runner of a named oracle, in the environment that `cargo xtask setup` makes.
    pub fn of(root: &Root, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            program: root.oracle_python(),
            script: root.path().join("oracles").join(name.replace('-', "_")).join("runner.py"),
            limit: Duration::from_mins(10),
        }
    }
}

/// A running oracle.
pub struct Oracle {
    launch: Launch,
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    log: Log,
    next: u64,
    hello: Hello,
}

impl Oracle {
    /// Starts it and exchanges greetings.
    pub fn start(launch: Launch) -> Result<Self, OracleError> {
        for path in [&launch.program, &launch.script] {
            if !path.exists() {
                let name = launch.name.clone();
                return Err(OracleError::NotInstalled { name, path: path.clone() });
            }
        }
        let failed = |source| OracleError::Start {
            name: launch.name.clone(),
            path: launch.program.clone(),
            source,
        };
        let mut child = Command::new(&launch.program)
            .arg("-u")
            .arg(&launch.script)
            .env("HF_HUB_OFFLINE", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let piped = || failed(std::io::Error::other("a pipe is missing"));
        let requests = child.stdin.take().ok_or_else(piped)?;
        let answers = read_lines(child.stdout.take().ok_or_else(piped)?);
        let log = Log::of(child.stderr.take().ok_or_else(piped)?);
        let hello = Hello {
            oracle: String::new(),
            packages: std::collections::BTreeMap::new(),
            backend: String::new(),
            device: String::new(),
        };
        let mut oracle = Self { launch, child, requests, answers, log, next: 0, hello };
        oracle.hello = match oracle.ask(&Request::Hello)? {
            Answer::Hello(hello) => hello,
            _ => return Err(oracle.broke("another answer than a greeting".into())),
        };
        if oracle.hello.oracle != oracle.launch.name {
            let message =
                format!("it is `{}`, wanted `{}`", oracle.hello.oracle, oracle.launch.name);
            return Err(oracle.broke(message));
        }
        Ok(oracle)
    }

    /// What it said of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Its process, for tests that end it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One question, one answer.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, OracleError> {
        self.next += 1;
        let mut envelope = serde_json::to_value(request)
            .map_err(|error| self.broke(format!("the request cannot be written: {error}")))?;
        envelope["protocol"] = PROTOCOL.into();
        envelope["id"] = self.next.into();
        if writeln!(self.requests, "{envelope}").and_then(|()| self.requests.flush()).is_err() {
            return Err(self.died());
        }
        let line = match self.answers.recv_timeout(self.launch.limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
            Err(RecvTimeoutError::Timeout) => {
                // It is ended either way; a process that is gone already is no error.
                let _ = self.child.kill();
                let seconds = self.launch.limit.as_secs();
                return Err(OracleError::TimedOut { name: self.launch.name.clone(), seconds });
            }
        };
        self.parse(&line)
    }

    fn parse(&self, line: &str) -> Result<Answer, OracleError> {
        let garbage = || OracleError::Garbage {
            name: self.launch.name.clone(),
            line: line.chars().take(QUOTED_CHARS).collect(),
        };
        let value: Value = serde_json::from_str(line).map_err(|_| garbage())?;
        let fields = value.as_object().ok_or_else(garbage)?;
        let number = |key: &str| fields.get(key).and_then(Value::as_u64);
        if number("protocol") != Some(u64::from(PROTOCOL)) {
            let found = fields.get("protocol").unwrap_or(&Value::Null);
            return Err(self.broke(format!("it speaks protocol {found}, wanted {PROTOCOL}")));
        }
        if number("id") != Some(self.next) {
            let found = fields.get("id").unwrap_or(&Value::Null);
            return Err(self.broke(format!("it answered request {found}, wanted {}", self.next)));
        }
        match serde_json::from_value(value) {
            Ok(Answer::Error { kind, message }) => {
                Err(OracleError::Refused { name: self.launch.name.clone(), kind, message })
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.broke(format!("its answer does not read: {error}"))),
        }
    }

    fn broke(&self, message: String) -> OracleError {
        OracleError::Protocol { name: self.launch.name.clone(), message }
    }

    fn died(&mut self) -> OracleError {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        let tail = self.log.tail(QUOTED_LINES);
        let stderr =
            if tail.is_empty() { String::new() } else { format!("\n  {}", tail.join("\n  ")) };
        OracleError::Died { name: self.launch.name.clone(), status, stderr }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
