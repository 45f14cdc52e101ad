//! Tier meta: a model asked the same thing in several ways, and its config perturbed.

mod config;
mod fuzz;
mod fuzz_batch;
mod joined;
mod paths;
mod player;
mod staged;
mod truth;

use std::{cell::OnceCell, path::Path, time::Instant};

use mlx_parity_engine::{EngineError, Fault, LoadOptions, Model, Tokenizer};
use mlx_parity_oracles::OracleError;
use mlx_parity_tensor::{HostTensor, TensorError};

use self::{player::Known, truth::Truth};
use crate::{
    case::{Kind, Prompt},
    check,
    compare::{BitReport, ToleranceReport, error::LengthMismatch},
    meta::{KvPacking, MetaCase},
    row::{NotRunKind, Outcome, Row},
    worker::Job,
};

/// Why a check has no verdict.
#[derive(Debug, thiserror::Error)]
enum MetaError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The float64 forward.
    #[error(transparent)]
    Truth(#[from] OracleError),
    /// Answers that cannot be compared.
    #[error(transparent)]
    Shape(#[from] LengthMismatch),
    /// Answers that cannot be joined.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A scratch file or folder.
    #[error("scratch folder: {0}")]
    Scratch(#[from] std::io::Error),
    /// The model's config, which is to be changed.
    #[error("config.json: {0}")]
    Config(#[from] serde_json::Error),
    /// A prompt too short for the path.
    #[error("the path needs {wanted} tokens, the prompt has {found}")]
    ShortPrompt {
        /// Tokens of the prompt.
        found: usize,
        /// Tokens needed.
        wanted: usize,
    },
    /// A trim that does not do what it must.
    #[error("a trim of {asked} behind {seen} tokens {did}, wanted {wanted}")]
    Trim {
        /// Positions it was asked to forget.
        asked: usize,
        /// Positions seen before.
        seen: usize,
        /// What it did.
        did: String,
        /// What it had to do.
        wanted: &'static str,
    },
    /// An operation of a random sequence.
    #[error("seed {seed}: {source}, after: {history}")]
    Sequence {
        /// The seed.
        seed: u64,
        /// The operations, the failed one last.
        history: String,
        /// What it was.
        source: Box<MetaError>,
    },
    /// A call that had to be refused was taken.
    #[error("{what} was taken, wanted a refusal")]
    NotRefused {
        /// What was taken.
        what: &'static str,
    },
    /// A path that came without a pair of answers: it would hold whatever the engine did.
    #[error("the path compared nothing")]
    NothingCompared,
    /// A job of another kind, or without its model.
    #[error("the job came without a model for this case")]
    NoModel,
}

/// How a check came out.
struct Verdict {
    held: bool,
    report: Option<BitReport>,
    tolerance: Option<ToleranceReport>,
    notes: Vec<String>,
    engine_ms: f64,
}

/// What the checks of a case share.
struct Bench<'a> {
    dir: &'a Path,
    model: Model,
    ids: Vec<u32>,
    options: LoadOptions,
    /// Whether this backend is one where the case claims equal bits.
    bits: bool,
    kv: Option<KvPacking>,
    one_by_one: Option<usize>,
    known: Known,
    truth: Truth<'a>,
    /// What the model says under its own config, once it was asked.
    unchanged: OnceCell<HostTensor>,
}

/// Runs every check of the job's case; `emit` gets exactly one row for each.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let Kind::Meta(case) = &job.case.kind else { return };
    let mut ids = job.case.checks().into_iter();
    let mut bench = match bench(job, case) {
        Ok(bench) => bench,
        Err(error) => return refused(job, &error, emit),
    };
    for (path, id) in case.paths.iter().zip(&mut ids) {
        let started = Instant::now();
        let verdict = paths::check(&mut bench, path);
        emit(row(job, id, started, verdict));
    }
    for (change, id) in case.config.iter().zip(&mut ids) {
        let started = Instant::now();
        emit(row(job, id, started, config::check(&bench, change)));
    }
    let seeds = case.fuzz.iter().flat_map(|fuzz| fuzz.seeds().map(move |seed| (fuzz, seed)));
    for ((fuzz, seed), id) in seeds.zip(&mut ids) {
        let started = Instant::now();
        let check = if fuzz.batch { fuzz_batch::check } else { fuzz::check };
        emit(row(job, id, started, check(&bench, fuzz, seed)));
    }
}

fn bench<'a>(job: &'a Job, case: &MetaCase) -> Result<Bench<'a>, MetaError> {
    let dir = job.model.as_deref().ok_or(MetaError::NoModel)?;
    let fault = job.fault.as_deref().map(Fault::parse).transpose()?;
    let options = LoadOptions { fault, ..LoadOptions::default() };
    let model = Model::load(dir, &options)?;
    let ids = match &case.prompt {
        Prompt::Ids(ids) => ids.clone(),
        Prompt::Text(text) => Tokenizer::load(dir)?.encode(text)?,
    };
    let backend = mlx_parity_engine::runtime_info()?.backend;
    let bits = case.bits_on.contains(&backend);
    let (truth, unchanged) = (Truth::new(dir), OnceCell::new());
    Ok(Bench {
        dir,
        model,
        ids,
        options,
        bits,
        kv: case.kv,
        one_by_one: case.one_by_one,
        known: Known::default(),
        truth,
        unchanged,
    })
}

/// The rows of a case that could not begin.
fn refused(job: &Job, error: &MetaError, emit: &mut dyn FnMut(Row)) {
    for (at, id) in job.case.checks().into_iter().enumerate() {
        let outcome = if at == 0 {
            Outcome::Error { message: error.to_string() }
        } else {
            let message = "the model could not be made ready".to_owned();
            Outcome::NotRun { kind: NotRunKind::Interrupted, message }
        };
        emit(check::row(job, id, outcome));
    }
}

fn row(job: &Job, id: String, started: Instant, verdict: Result<Verdict, MetaError>) -> Row {
    let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(error) => {
            let outcome = Outcome::Error { message: error.to_string() };
            return Row { elapsed_ms, ..check::row(job, id, outcome) };
        }
    };
    let outcome = if verdict.held { Outcome::Held } else { Outcome::Differ };
    let mut row = check::row(job, id, outcome);
    row.report = verdict.report;
    row.tolerance = verdict.tolerance;
    row.notes.extend(verdict.notes);
    row.elapsed_ms = elapsed_ms;
    row.engine_ms = verdict.engine_ms;
    row
}
