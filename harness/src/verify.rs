//! The main job: plan, run in workers, record, report.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    case::{self, Case, CaseError, Filter},
    exit::ExitCode,
    expect::Expectations,
    fingerprint::Fingerprint,
    golden::Golden,
    meta::Matrix,
    model::Registry,
    ops::{Need, Tolerances},
    plan::{PlanOptions, Planned, Planner},
    record::{RUN_SCHEMA, Record, RecordError, RunInfo},
    report::{self, Context},
    root::Root,
    row::{Outcome, Row, Tier},
    worker::{self, Job, PoolOptions, WorkerError},
};

/// What to verify, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which cases.
    pub filter: Filter,
    /// Freeze anew and compare with that.
    pub live: bool,
    /// Take up the last unfinished run of the same plan.
    pub resume: bool,
    /// Worker processes.
    pub workers: usize,
    /// Limit for one case.
    pub limit: Duration,
    /// A deliberate fault of the engine.
    pub fault: Option<String>,
    /// Where runs are recorded; `reports/record` of the project when not given.
    pub record: Option<PathBuf>,
    /// The binary that has the `worker` command.
    pub program: PathBuf,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// A run that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A case file, the registry or the expectations.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// No worker can be started.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The record.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl VerifyError {
    /// The exit code of this error.
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Case(_) | Self::Record(RecordError::NothingToResume { .. }) => ExitCode::Usage,
            Self::Worker(_) => ExitCode::Crashed,
            Self::Record(_) => ExitCode::Internal,
        }
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Verified {
    /// Its rows, in plan order.
    pub rows: Vec<Row>,
    /// What reports say besides.
    pub context: Context,
    /// The table behind the matrix of tier meta, where the project has one.
    pub matrix: Option<Matrix>,
    /// The verdict.
    pub exit: ExitCode,
}

/// Watches a run as it goes.
pub trait Observer {
    /// The plan is made.
    fn planned(&mut self, context: &Context, checks: usize);
    /// A check ended, in this run or an earlier sitting of it.
    fn row(&mut self, row: &Row);
}

/// Verifies the selected cases.
pub fn verify(
    root: &Root,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Verified, VerifyError> {
    let started = Instant::now();
    let all = case::load_all(&root.cases())?;
    let registry = Registry::load(root)?;
    let here = worker::probe(&options.program)?;
    let every_check: Vec<_> = all.iter().flat_map(Case::checks).collect();
    let expectations = Expectations::load(&root.expectations_file(), &here, &every_check)?;
    let tolerances = tolerances(root, &here, &all)?;
    let selected = options.filter.select(all);
    let checks: Vec<_> = selected.iter().flat_map(Case::checks).collect();
    let mut record = open_record(root, options, &here, &selected, checks.clone())?;
    let (jobs, not_run) = plan(root, &registry, &here, options, selected, record.rows());
    let mut context = context(root, options, &here, &jobs, record.dir());
    observer.planned(&context, checks.len());
    for row in record.rows() {
        observer.row(row);
    }
    let mut failed = None;
    let mut keep = |row: Row, observer: &mut dyn Observer| {
        let row = expectations.judge(row);
        observer.row(&row);
        if let Err(error) = record.push(row) {
            failed.get_or_insert(error);
        }
    };
    for row in not_run {
        keep(row, observer);
    }
    let pool = PoolOptions {
        program: options.program.clone(),
        workers: options.workers,
        limit: options.limit,
    };
    worker::run(&jobs, &pool, |row| keep(row, observer));
    failed.map_or(Ok(()), Err)?;

    context.seconds = started.elapsed().as_secs_f64();
    context.complaints = tolerances
        .map_or_else(Vec::new, |(table, cases)| table.idle(&cases, &|id| need(record.rows(), id)));
    let exit = match ExitCode::of_rows(record.rows()) {
        ExitCode::Held if !context.complaints.is_empty() => ExitCode::Mismatch,
        exit => exit,
    };
    record.finish(exit.code(), context.seconds)?;
    let matrix = case::load_matrix(&root.cases())?;
    write_reports(&record, &context, matrix.as_ref())?;
    Ok(Verified { rows: record.rows().to_vec(), context, matrix, exit })
}

/// The table of tolerances with the cases it is for; none where there are no ops.
fn tolerances(
    root: &Root,
    here: &Fingerprint,
    all: &[Case],
) -> Result<Option<(Tolerances, Vec<Case>)>, CaseError> {
    let ops: Vec<_> = all.iter().filter(|case| case.tier == Tier::Ops).cloned().collect();
    if ops.is_empty() {
        return Ok(None);
    }
    let table = Tolerances::load(&root.tolerances_file(), &here.backend)?;
    table.check_used(&ops)?;
    Ok(Some((table, ops)))
}

/// What a check needed of its bound.
fn need(rows: &[Row], id: &str) -> Need {
    match rows.iter().find(|row| row.id == id) {
        None => Need::Unknown,
        Some(row) if !row.ran() => Need::Unknown,
        Some(Row { outcome: Outcome::Held, tolerance: Some(report), .. }) => {
            Need::Units(report.minimum)
        }
        Some(_) => Need::Other,
    }
}

fn open_record(
    root: &Root,
    options: &Options,
    here: &Fingerprint,
    selected: &[Case],
    checks: Vec<String>,
) -> Result<Record, VerifyError> {
    let base = options.record.clone().unwrap_or_else(|| root.record());
    let plan = plan_digest(options, here, selected);
    if options.resume {
        let cases: Vec<_> = selected.iter().map(|case| case.id.clone()).collect();
        let case_of = |id: &str| {
            let mine = |case: &&String| id.starts_with(&format!("{case}/"));
            cases.iter().find(mine).cloned().unwrap_or_default()
        };
        return Ok(Record::resume(&base, &plan, &case_of)?);
    }
    let info = RunInfo {
        schema: RUN_SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        fingerprint: here.clone(),
        plan,
        checks,
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        finished: None,
    };
    Ok(Record::create(&base, info)?)
}

/// Two runs with the same digest give the same rows.
fn plan_digest(options: &Options, here: &Fingerprint, selected: &[Case]) -> String {
    let cases: Vec<_> = selected.iter().map(|case| (case.id.clone(), case.digest())).collect();
    let identity = serde_json::json!({
        "cases": cases, "live": options.live, "fault": options.fault, "place": here,
    });
    crate::digest::of_bytes(identity.to_string().as_bytes())
}

fn context(
    root: &Root,
    options: &Options,
    here: &Fingerprint,
    jobs: &[Job],
    record: &Path,
) -> Context {
    let oracles: BTreeSet<_> = jobs.iter().map(oracle_version).collect();
    let oracles: Vec<_> = oracles.into_iter().collect();
    Context {
        fingerprint: here.clone(),
        oracle: if oracles.is_empty() { "none".to_owned() } else { oracles.join(", ") },
        workers: options.workers,
        seconds: 0.0,
        complaints: Vec::new(),
        record: root.relative(record),
        command: options.command.join(" "),
    }
}

/// `mlx-lm 0.32.2`, from the golden that answers the job.
fn oracle_version(job: &Job) -> String {
    let oracle = job.case.oracle();
    let golden = job.files.as_ref().and_then(|files| Golden::open(&files.golden).ok());
    let version = golden.and_then(|golden| golden.manifest.oracle.packages.get(oracle).cloned());
    format!("{oracle} {}", version.unwrap_or_default()).trim_end().to_owned()
}

/// Plans the cases that have no rows yet.
fn plan(
    root: &Root,
    registry: &Registry,
    here: &Fingerprint,
    options: &Options,
    selected: Vec<Case>,
    done: &[Row],
) -> (Vec<Job>, Vec<Row>) {
    let plan = PlanOptions {
        live: options.live,
        fault: options.fault.clone(),
        program: Some(options.program.clone()),
    };
    let mut planner = Planner::new(root, registry, here, plan);
    let (mut jobs, mut not_run) = (Vec::new(), Vec::new());
    for case in selected {
        if done.iter().any(|row| row.case == case.id) {
            continue;
        }
        match planner.plan(case) {
            Planned::Job(job) => jobs.push(*job),
            Planned::NotRun(rows) => not_run.extend(rows),
        }
    }
    (jobs, not_run)
}

fn write_reports(
    record: &Record,
    context: &Context,
    matrix: Option<&Matrix>,
) -> Result<(), RecordError> {
    let rows = record.rows();
    let junit = report::junit(rows)
        .map_err(|message| RecordError::Format { path: record.dir().join("junit.xml"), message })?;
    crate::record::write_atomic(&record.dir().join("junit.xml"), junit.as_bytes())?;
    let mut summary = report::markdown(rows, context);
    let matrix = matrix.map(|matrix| report::matrix(matrix, rows)).unwrap_or_default();
    if !matrix.is_empty() {
        summary = format!("{summary}\n```text\n{matrix}\n```\n");
    }
    crate::record::write_atomic(&record.dir().join("summary.md"), summary.as_bytes())
}
