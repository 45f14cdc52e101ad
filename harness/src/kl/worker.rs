//! A worker that computes logits, as its parent sees it.

use std::{
    fs,
    io::BufReader,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use super::protocol::{Reply, Request, hear, say};
use crate::{fingerprint::Fingerprint, pipe::Log, worker::how_it_ended};

/// Time a worker has to load MLX and say where it computes.
const GREETING_LIMIT: Duration = Duration::from_mins(1);

/// Why a worker gave no answer.
#[derive(Debug)]
pub enum Trouble {
    /// It said no.
    Refused(String),
    /// It died, hung or wrote nonsense.
    Gone(String),
}

/// A running worker.
pub struct Worker {
    process: Process,
    limit: Duration,
    fingerprint: Fingerprint,
}

impl Worker {
    /// Starts `program logits-worker` and waits for its greeting; `limit` bounds each answer.
    pub fn start(program: &Path, limit: Duration) -> Result<Self, Trouble> {
        let mut process = Process::start(program)?;
        match process.answer(GREETING_LIMIT) {
            Ok((Reply::Hello(fingerprint), _)) => Ok(Self { process, limit, fingerprint }),
            Ok((other, _)) => Err(out_of_turn(&other)),
            Err(Trouble::Refused(message)) => {
                Err(Trouble::Gone(format!("its engine does not start: {message}")))
            }
            Err(gone) => Err(gone),
        }
    }

    /// Where it computes.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Sends a request; its answer comes behind those of the requests before it.
    pub fn send(&mut self, request: &Request) -> Result<(), Trouble> {
        let Process { child, requests, log, .. } = &mut self.process;
        say(requests, request, &[]).map_err(|_| Trouble::Gone(how_it_ended(child, log)))
    }

    /// Waits for the next answer.
    pub fn answer(&mut self) -> Result<(Reply, Vec<u8>), Trouble> {
        self.process.answer(self.limit)
    }

    /// A request and its answer.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, Trouble> {
        self.send(request)?;
        Ok(self.answer()?.0)
    }

    /// Most bytes it has held so far, where the system says (Linux).
    pub fn peak_memory(&self) -> Option<u64> {
        peak_memory(&self.process.child.id().to_string())
    }
}

struct Process {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<Result<(Reply, Vec<u8>), String>>,
    log: Log,
}

impl Process {
    fn start(program: &Path) -> Result<Self, Trouble> {
        let gone = |error: std::io::Error| Trouble::Gone(format!("it does not start: {error}"));
        let mut child = Command::new(program)
            .arg("logits-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(gone)?;
        let piped = || Trouble::Gone("a pipe is missing".to_owned());
        let requests = child.stdin.take().ok_or_else(piped)?;
        let mut pipe = BufReader::new(child.stdout.take().ok_or_else(piped)?);
        let log = Log::of(child.stderr.take().ok_or_else(piped)?);
        // Nothing is read ahead: one payload is being read and one is in use.
        let (sender, replies) = sync_channel(0);
        thread::spawn(move || listen(&mut pipe, &sender));
        Ok(Self { child, requests, replies, log })
    }

    fn answer(&mut self, limit: Duration) -> Result<(Reply, Vec<u8>), Trouble> {
        match self.replies.recv_timeout(limit) {
            Ok(Ok((Reply::Refused(message), _))) => Err(Trouble::Refused(message)),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(message)) => Err(self.end(message)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Trouble::Gone(how_it_ended(&mut self.child, &self.log)))
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(self.end(format!("no answer in {} s, ended", limit.as_secs_f64())))
            }
        }
    }

    fn end(&mut self, how: String) -> Trouble {
        // A process that is gone already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        Trouble::Gone(how)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer to another question.
pub(super) fn out_of_turn(reply: &Reply) -> Trouble {
    Trouble::Gone(format!("it answered out of turn: {reply:?}"))
}

fn listen(
    pipe: &mut BufReader<impl std::io::Read>,
    replies: &SyncSender<Result<(Reply, Vec<u8>), String>>,
) {
    loop {
        let heard = match hear(pipe) {
            Ok(None) => return,
            Ok(Some(answer)) => Ok(answer),
            // The end of the pipe within a payload: the process is gone, and its exit status says why.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return,
            Err(error) => Err(error.to_string()),
        };
        let last = heard.is_err();
        if replies.send(heard).is_err() || last {
            return;
        }
    }
}

/// `VmHWM` of a process, in bytes.
pub(super) fn peak_memory(process: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}
