//! L3: the engine's own frozen trajectory. The L1 path must repeat it bit for bit; other compositions are measured
//! from it and held to their envelopes.

mod freeze;
mod play;

use std::{path::Path, time::Instant};

use mlx_parity_engine::{Decoder, Fault, LoadOptions, Model, Tokenizer};
use mlx_parity_tensor::HostTensor;

pub use self::freeze::freeze;
pub(crate) use self::play::forced;
use self::play::{Part, frozen, play, scored};
use super::l1::{Stop, tell};
use crate::{
    case::{self, DecodeFrom, Envelope, Prompt, Trajectory},
    check::{self, composed},
    compare::bit_exact,
    envelope::{self, Controls},
    golden::Golden,
    row::{NotRunKind, Outcome, Row},
    stats::Position,
    worker::Job,
};

/// Prompt tokens a call of the control *split*.
const SPLIT: usize = 1;

/// Runs every check of the job's case; `emit` gets exactly one row for each.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let mut pending = job.case.checks().into_iter();
    if let Err(stop) = hold(job, &mut pending, emit) {
        tell(job, &stop, pending, emit);
    }
}

fn hold(
    job: &Job,
    pending: &mut impl Iterator<Item = String>,
    emit: &mut dyn FnMut(Row),
) -> Result<(), Stop> {
    let (trajectory, files) =
        job.case.trajectory().zip(job.files.as_ref()).ok_or(Stop::NotAReplay)?;
    let parts = frozen(trajectory, &Golden::open(&files.golden)?)?;
    let mut next = || pending.next().unwrap_or_default();
    if trajectory.tokenizes() {
        emit(tokenize(job, next(), trajectory, &files.model, &parts)?);
    }
    let fault = job.fault.as_deref().map(Fault::parse).transpose()?;
    let model = Model::load(&files.model, &LoadOptions { fault, ..LoadOptions::default() })?;
    let run = Run { job, model: &model, trajectory, parts: &parts };
    let mut sound = true;
    let mut again = Vec::new();
    for part in &parts {
        let row = run.control(next(), part, &mut again)?;
        sound &= row.outcome == Outcome::Held;
        emit(row);
    }
    if trajectory.envelopes.is_empty() {
        return Ok(());
    }
    if !sound {
        for _ in &trajectory.envelopes {
            let message = "the control lane does not repeat the trajectory".to_owned();
            let outcome = Outcome::NotRun { kind: NotRunKind::Interrupted, message };
            emit(check::row(job, next(), outcome));
        }
        return Ok(());
    }
    let controls = Controls { again, split: run.positions(SPLIT, None)? };
    for envelope in &trajectory.envelopes {
        emit(run.envelope(next(), envelope, &controls)?);
    }
    Ok(())
}

fn tokenize(
    job: &Job,
    id: String,
    trajectory: &Trajectory,
    model: &Path,
    parts: &[Part],
) -> Result<Row, Stop> {
    let started = Instant::now();
    let tokenizer = Tokenizer::load(model)?;
    let (mut got, mut want) = (Vec::new(), Vec::new());
    for (prompt, part) in trajectory.prompts.iter().zip(parts) {
        if let Prompt::Text(text) = &prompt.prompt {
            let ids = tokenizer.encode(text)?;
            let known = if trajectory.decode_from == DecodeFrom::Prompt {
                &part.ids[..]
            } else {
                &part.ids[..part.context]
            };
            got.extend(ids);
            want.extend_from_slice(known);
        }
    }
    let report = bit_exact(&ids(&got)?.view(), &ids(&want)?.view());
    let outcome = if report.is_exact() { Outcome::Held } else { Outcome::Differ };
    let report = (!report.is_exact()).then_some(report);
    Ok(timed(Row { report, ..check::row(job, id, outcome) }, started))
}

/// What the checks of a case share.
struct Run<'a> {
    job: &'a Job,
    model: &'a Model,
    trajectory: &'a Trajectory,
    parts: &'a [Part],
}

impl Run<'_> {
    /// The frozen path again: bits, and what the statistics make of equal bits.
    fn control(&self, id: String, part: &Part, again: &mut Vec<Position>) -> Result<Row, Stop> {
        let started = Instant::now();
        let mut decoder = Decoder::new(self.model, self.trajectory.prefill_step);
        let logits = play(&mut decoder, part)?;
        let report = bit_exact(&logits.view(), &part.logits.view());
        let positions = scored(part, &logits)?;
        let outcome = match positions.iter().position(|p| p.kl != 0.0 || !p.agree) {
            _ if !report.is_exact() => Outcome::Differ,
            None => Outcome::Held,
            Some(at) => Outcome::Error {
                message: format!("equal bits, but position {at} is scored {:?}", positions[at]),
            },
        };
        again.extend(positions);
        let report = (!report.is_exact()).then_some(report);
        Ok(timed(Row { report, ..check::row(self.job, id, outcome) }, started))
    }

    /// The positions of every prompt under a composition.
    fn positions(
        &self,
        prefill_step: usize,
        composition: Option<&case::Composition>,
    ) -> Result<Vec<Position>, Stop> {
        let mut positions = Vec::new();
        for part in self.parts {
            let mut decoder = composed::with(self.model, prefill_step, composition)?;
            positions.extend(scored(part, &play(&mut decoder, part)?)?);
        }
        Ok(positions)
    }

    fn envelope(&self, id: String, envelope: &Envelope, controls: &Controls) -> Result<Row, Stop> {
        let started = Instant::now();
        let step = self.trajectory.prefill_step;
        let positions = self.positions(step, Some(&envelope.composition))?;
        let report = envelope::judge(&positions, controls, &self.clusters(), envelope.bounds);
        let outcome = match report.refused.first() {
            Some(reason) => Outcome::Error { message: format!("refused bound: {reason}") },
            None if report.held() => Outcome::Held,
            None => Outcome::Differ,
        };
        let composition = Some(envelope.composition.to_string());
        let envelope = Some(report);
        Ok(timed(Row { envelope, composition, ..check::row(self.job, id, outcome) }, started))
    }

    /// Of which prompt each position is.
    fn clusters(&self) -> Vec<u32> {
        let of = |at: usize| std::iter::repeat_n(at as u32, self.trajectory.positions);
        (0..self.parts.len()).flat_map(of).collect()
    }
}

/// Nearly all of a row's time is spent in the engine.
fn timed(row: Row, started: Instant) -> Row {
    let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
    Row { elapsed_ms, engine_ms: elapsed_ms, ..row }
}

fn ids(ids: &[u32]) -> Result<HostTensor, Stop> {
    HostTensor::from_u32([ids.len()], ids).map_err(|error| Stop::Engine(error.into()))
}
