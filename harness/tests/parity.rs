//! One libtest test per case: `cargo test --test parity l1::gemma3` filters, nextest shows each.
//!
//! MLX runs in worker processes, never on test threads. A case whose model is not provisioned is
//! *ignored*, which no runner counts as a pass; so is one that needs more memory than a test machine has, and
//! the part of tier meta that `verify --quick` leaves out: `cargo xtask verify` and the nightly run all of it.

use std::{
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_parity::{
    case::{self, Case, Kind},
    expect::Expectations,
    fingerprint::Fingerprint,
    model::Registry,
    plan::{PlanOptions, Planned, Planner},
    report,
    root::Root,
    row::Row,
    worker::{self, Ended, Job, Worker},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mlx-parity");
const LIMIT: Duration = Duration::from_mins(5);

struct Suite {
    root: Root,
    registry: Registry,
    checks: Vec<String>,
    place: Mutex<Option<(Fingerprint, Arc<Expectations>)>>,
    planning: Mutex<()>,
}

impl Suite {
    /// Where the workers compute and what is expected to fail there, found out once.
    fn place(&self) -> Result<(Fingerprint, Arc<Expectations>), Failed> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            let here = worker::probe(Path::new(PROGRAM))?;
            let file = self.root.expectations_file();
            let expectations = Arc::new(Expectations::load(&file, &here, &self.checks)?);
            *place = Some((here, expectations));
        }
        Ok(place.clone().ok_or("no worker answered")?)
    }

    fn run(&self, case: &Case) -> Result<(), Failed> {
        let (here, expectations) = self.place()?;
        let planned = {
            // Planning may ask an oracle, one at a time.
            let _one = self.planning.lock().unwrap_or_else(PoisonError::into_inner);
            let options = PlanOptions { program: Some(PROGRAM.into()), ..PlanOptions::default() };
            Planner::new(&self.root, &self.registry, &here, options).plan(case.clone())
        };
        let rows = match planned {
            Planned::NotRun(rows) => rows,
            Planned::Job(job) => run_job(&job)?,
        };
        let rows: Vec<_> = rows.into_iter().map(|row| expectations.judge(row)).collect();
        match rows.iter().find(|row| row.failed() || !row.ran()) {
            Some(row) => Err(report::failure(row).into()),
            None if rows.len() == case.checks().len() => Ok(()),
            None => Err(format!("{} rows of {}", rows.len(), case.checks().len()).into()),
        }
    }
}

fn run_job(job: &Job) -> Result<Vec<Row>, Failed> {
    let mut rows = Vec::new();
    match Worker::start(Path::new(PROGRAM))?.run(job, LIMIT, |row| rows.push(row)) {
        Ended::Complete => Ok(rows),
        Ended::Died { how } => Err(format!("crashed: {how}").into()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) if trials.is_empty() => {
            eprintln!("no case was found: a suite without tests proves nothing");
            ExitCode::FAILURE
        }
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> Result<Vec<Trial>, Box<dyn std::error::Error>> {
    let root = Root::find(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")))?;
    let registry = Registry::load(&root)?;
    let cases = case::load_all(&root.cases())?;
    let checks = cases.iter().flat_map(Case::checks).collect();
    let suite = Arc::new(Suite {
        root,
        registry,
        checks,
        place: Mutex::default(),
        planning: Mutex::default(),
    });
    Ok(cases.into_iter().map(|case| trial(&suite, case)).collect())
}

fn trial(suite: &Arc<Suite>, case: Case) -> Trial {
    let model = case.model().and_then(|model| suite.registry.get(model));
    let provisioned = model.is_none_or(|model| model.provisioned(&suite.root));
    let large = match &case.kind {
        Kind::Op(op) => op.large,
        Kind::Trajectory(trajectory) => trajectory.large,
        _ => false,
    };
    let slow = matches!(&case.kind, Kind::Meta(meta) if !meta.quick);
    let not_frozen = case.not_frozen().is_some();
    let name = case.id.replace('/', "::");
    let suite = Arc::clone(suite);
    Trial::test(name, move || suite.run(&case))
        .with_ignored_flag(large || slow || not_frozen || !provisioned)
}
