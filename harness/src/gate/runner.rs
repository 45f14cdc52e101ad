//! Planning, running, recording, deciding.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{
    case::Stage,
    fold::{Decided, fold},
    plan::{Asked, Plan, PlanError, job, plan},
};
use crate::{
    case::{Case, Kind},
    exit::ExitCode,
    fingerprint::Fingerprint,
    record::{RUN_SCHEMA, Record, RecordError, RunInfo},
    root::Root,
    row::{Outcome, Row},
    worker::{self, Job, PoolOptions, WorkerError},
};

/// How to gate.
#[derive(Debug, Clone)]
pub struct Options {
    /// What.
    pub asked: Asked,
    /// Take up the last unfinished run of the same plan.
    pub resume: bool,
    /// Worker processes; times are measured by one alone.
    pub workers: usize,
    /// Limit for one case.
    pub limit: Duration,
    /// Where runs are recorded; `reports/record` of the project when not given.
    pub record: Option<PathBuf>,
    /// The binary that has the `worker` command.
    pub program: PathBuf,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// A run that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No worker can be started.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The record.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl GateError {
    /// The exit code of this error.
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Plan(_) | Self::Record(RecordError::NothingToResume { .. }) => ExitCode::Usage,
            Self::Worker(_) => ExitCode::Crashed,
            Self::Record(_) => ExitCode::Internal,
        }
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Gated {
    /// Decisions, in plan order.
    pub decided: Vec<Decided>,
    /// Where it was.
    pub here: Fingerprint,
    /// Its rows.
    pub rows: Vec<Row>,
    /// The folder of its record.
    pub record: PathBuf,
    /// Wall time of this sitting, in seconds.
    pub seconds: f64,
    /// The verdict.
    pub exit: ExitCode,
}

/// Watches a run as it goes.
pub trait Observer {
    /// The plan is made.
    fn planned(&mut self, here: &Fingerprint, plan: &Plan, rows: usize);
    /// A row is known, of this sitting or an earlier one.
    fn row(&mut self, row: &Row);
}

/// Gates what was asked.
///
/// # Errors
/// [`GateError`].
pub fn gate(
    root: &Root,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Gated, GateError> {
    let started = Instant::now();
    let here = worker::probe(&options.program)?;
    let plan = plan(root, &here, &options.asked)?;
    let mut record = open_record(root, options, &here, &plan)?;
    let rows: usize = cases(&plan).map(|case| case.checks().len()).sum();
    observer.planned(&here, &plan, rows);
    record.rows().iter().for_each(|row| observer.row(row));
    let (alone, together) = jobs(&plan, record.rows());
    let (alone, together) = (vec![alone.as_slice()], groups(&together));
    let mut failed = None;
    for (groups, workers) in [(together, options.workers), (alone, 1)] {
        let pool = PoolOptions { program: options.program.clone(), workers, limit: options.limit };
        worker::run_groups(&groups, &pool, |row| {
            observer.row(&row);
            if let Err(error) = record.push(row) {
                failed.get_or_insert(error);
            }
        });
    }
    failed.map_or(Ok(()), Err)?;
    let name = record.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let decided = fold(&plan, record.rows(), &name, partial(&here, options.asked.quick));
    let exit = exit(&decided, record.rows());
    let seconds = started.elapsed().as_secs_f64();
    record.finish(exit.code(), seconds)?;
    Ok(Gated {
        decided,
        here,
        rows: record.rows().to_vec(),
        record: record.dir().to_owned(),
        seconds,
        exit,
    })
}

/// Why a run is less than a whole one: it tries less, or MLX computes as it does not by default.
fn partial(here: &Fingerprint, quick: bool) -> Option<&'static str> {
    match (quick, here.env.is_empty()) {
        (true, _) => Some("a quick run"),
        (false, false) => Some("with variables set that change MLX's kernels"),
        (false, true) => None,
    }
}

fn cases(plan: &Plan) -> impl Iterator<Item = &Case> {
    plan.cells.iter().chain(&plan.backwards).flat_map(|planned| &planned.cases)
}

/// Jobs without rows yet: those that measure time, and the others, those of one model together and ahead, since they take
/// longest.
fn jobs(plan: &Plan, done: &[Row]) -> (Vec<Job>, Vec<Job>) {
    let left = cases(plan).filter(|case| !done.iter().any(|row| row.case == case.id));
    let jobs = left.filter_map(job);
    let (alone, mut together): (Vec<_>, Vec<_>) =
        jobs.partition(|job| matches!(stage(job), Some(Stage::Speed)));
    together.sort_by_key(|job| match (model(job), stage(job)) {
        (Some(model), _) => (0, model),
        (None, Some(Stage::Emulated { .. })) => (1, String::new()),
        (None, Some(Stage::Power { .. })) => (2, String::new()),
        _ => (3, String::new()),
    });
    (alone, together)
}

/// Jobs that lie together because they ask one model in one composition, each as a group; others alone.
fn groups(jobs: &[Job]) -> Vec<&[Job]> {
    jobs.chunk_by(|a, b| model(a).is_some() && model(a) == model(b)).collect()
}

const fn stage(job: &Job) -> Option<&Stage> {
    match &job.case.kind {
        Kind::Gate(of) => Some(&of.stage),
        _ => None,
    }
}

/// The model that a job asks, and how it computes.
fn model(job: &Job) -> Option<String> {
    match stage(job)? {
        Stage::Model(task) => Some(format!("{} {}", task.name, task.base)),
        _ => None,
    }
}

fn open_record(
    root: &Root,
    options: &Options,
    here: &Fingerprint,
    plan: &Plan,
) -> Result<Record, RecordError> {
    let base = options.record.clone().unwrap_or_else(|| root.record());
    let known: Vec<_> = cases(plan).map(|case| (case.id.clone(), case.digest())).collect();
    let identity = serde_json::json!({ "gate": known, "place": here });
    let digest = crate::digest::of_bytes(identity.to_string().as_bytes());
    if options.resume {
        let case_of = |id: &str| {
            let mine = |case: &&(String, String)| id.starts_with(&format!("{}/", case.0));
            known.iter().find(mine).map(|case| case.0.clone()).unwrap_or_default()
        };
        return Record::resume(&base, &digest, &case_of);
    }
    let info = RunInfo {
        schema: RUN_SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        fingerprint: here.clone(),
        plan: digest,
        checks: cases(plan).flat_map(Case::checks).collect(),
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        finished: None,
    };
    Record::create(&base, info)
}

/// A wrong kernel, or evidence that could not be computed, is a mismatch; want of evidence is none.
fn exit(decided: &[Decided], rows: &[Row]) -> ExitCode {
    use mlx_parity_kernels::ledger::Decision;

    let any = |wanted: fn(&Outcome) -> bool| rows.iter().any(|row| wanted(&row.outcome));
    if any(|outcome| matches!(outcome, Outcome::Crashed { .. })) {
        return ExitCode::Crashed;
    }
    let rejected = decided.iter().any(|one| {
        one.entry.decision == Decision::Reject
            || one.emulated.as_ref().is_some_and(|of| of.rejecting().is_some())
    });
    if rejected || any(|outcome| matches!(outcome, Outcome::Error { .. })) {
        return ExitCode::Mismatch;
    }
    if rows.iter().any(Row::ran) { ExitCode::Held } else { ExitCode::NothingRan }
}

/// Decisions about cells whose name contains `cell`, each from the newest ended run that has all its rows.
///
/// # Errors
/// [`GateError`].
pub fn recorded(
    root: &Root,
    options: &Options,
    cell: &str,
) -> Result<Vec<(PathBuf, Decided)>, GateError> {
    let here = worker::probe(&options.program)?;
    let mut plan = plan(root, &here, &Asked { mutants: true, ..options.asked.clone() })?;
    let wanted = |planned: &super::plan::Planned| planned.cell.to_string().contains(cell);
    plan.backwards.extend(plan.cells.iter().filter(|planned| !wanted(planned)).cloned());
    plan.cells.retain(wanted);
    let base = options.record.clone().unwrap_or_else(|| root.record());
    let mut runs = Vec::new();
    for dir in crate::record::run_dirs(&base)? {
        let info = crate::record::read_run(&dir)?;
        let gates = info.checks.iter().any(|check| check.starts_with("gate/"));
        if gates && info.finished.is_some() {
            runs.push((info.started.clone(), dir));
        }
    }
    runs.sort();
    let mut found = Vec::new();
    for planned in std::mem::take(&mut plan.cells) {
        for (_, dir) in runs.iter().rev() {
            let rows = crate::record::read(dir)?;
            let prefix = format!(
                "gate/{}/{}/{}/",
                planned.cell.kernel, planned.cell.dtype, planned.cell.class
            );
            if rows.iter().any(|row| row.id.starts_with(&prefix)) {
                let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let one = Plan { cells: vec![planned.clone()], backwards: plan.backwards.clone() };
                found
                    .extend(fold(&one, &rows, &name, None).into_iter().map(|of| (dir.clone(), of)));
                break;
            }
        }
    }
    Ok(found)
}
