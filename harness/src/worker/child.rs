//! The worker's side: reads jobs from stdin, writes rows to stdout.

use std::{
    io::{BufRead as _, Write as _},
    path::Path,
};

use super::{Command, Job, Message};
use crate::{bisect::Walker, case::Kind, check, fingerprint::Fingerprint};

/// Serves jobs until stdin ends.
pub fn serve() -> anyhow::Result<()> {
    match mlx_parity_engine::runtime_info() {
        Ok(info) => say(&Message::Hello(Fingerprint::here(&info.mlx_version, &info.backend)))?,
        Err(error) => {
            say(&Message::Broken(error.to_string()))?;
            anyhow::bail!("the engine does not start: {error}");
        }
    }
    let mut walker = Walker::default();
    for line in std::io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            Command::Run(job) => run(&job)?,
            Command::Freeze { job, out } => answer(check::trajectory::freeze(&job, &out))?,
            Command::Tap { job, step, out } => answer(tap(&job, step, &out))?,
            Command::Walk(walk) => answer(walker.walk(&walk))?,
        }
    }
    Ok(())
}

/// Says how a command that has no rows ended.
fn answer(done: Result<(), String>) -> anyhow::Result<()> {
    say(&done.map_or_else(Message::Broken, |()| Message::Done))
}

fn tap(job: &Job, step: usize, out: &Path) -> Result<(), String> {
    match job.case.kind {
        Kind::Denoise(_) => check::denoise::tap(job, step, out),
        _ => check::l1::tap(job, step, out),
    }
}

fn run(job: &Job) -> anyhow::Result<()> {
    let mut failed = None;
    let check = match job.case.kind {
        Kind::Replay(_) => check::l1::run,
        Kind::Denoise(_) => check::denoise::run,
        Kind::Deviation(_) => check::deviation::run,
        Kind::Trajectory(_) => check::trajectory::run,
        Kind::Op(_) => check::ops::run,
        Kind::Meta(_) => check::meta::run,
        Kind::Metal(_) => check::metal::run,
        Kind::Gate(_) => check::gate::run,
        Kind::Vjp(_) => check::vjp::run,
    };
    check(job, &mut |row| {
        if let Err(error) = say(&Message::Row(Box::new(row))) {
            failed = Some(error);
        }
    });
    failed.map_or(Ok(()), Err)?;
    say(&Message::Done)
}

/// One line, flushed: a row that was computed is never lost.
fn say(message: &Message) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
