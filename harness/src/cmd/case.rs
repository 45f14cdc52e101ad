//! `mlx-parity case`: everything needed to replay one case by hand.

use anyhow::Context as _;

use super::{Common, Failure, Result, say};
use crate::{
    case::{self, Filter},
    exit::ExitCode,
    model::Registry,
    plan::{PlanOptions, Planned, Planner},
    report,
    worker::{self, Command, Ended, Worker},
};

/// Show one case: its inputs, its golden, the worker's command line, and its rows
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Id of a case, or of one check in it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Run it, and where it fails compare intermediates with the oracle's
    #[arg(long)]
    pub explain: bool,
    /// Make the engine wrong on purpose (debug builds)
    #[arg(long, value_name = "NAME")]
    pub fault: Option<String>,
    /// The bug that a kernel is to have, `KERNEL=mutant:NAME`, where NAME is a trial `kernel/KERNEL/DTYPE/CLASS/TRIAL` of
    /// the gate (debug builds)
    #[arg(long, value_name = "LEVER")]
    pub lever: Option<String>,
    /// Limit for the case, in seconds
    #[arg(long, value_name = "S", default_value_t = 120)]
    pub timeout: u64,
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    if let Some(trial) = args.name.strip_prefix(super::replay::PREFIX) {
        return super::replay::run(trial, args.lever.as_deref(), args.timeout);
    }
    if args.lever.is_some() {
        return Err(Failure::usage(
            "--lever is for trials of kernels, kernel/KERNEL/DTYPE/CLASS/TRIAL",
        ));
    }
    let root = common.root()?;
    let usage = |error: case::CaseError| Failure::new(ExitCode::Usage, error);
    let registry = Registry::load(&root).map_err(usage)?;
    let filter = Filter { ids: vec![args.name.clone()], large: true, ..Filter::default() };
    let mut chosen = filter.select(case::load_all(&root.cases()).map_err(usage)?);
    if chosen.len() > 1 {
        chosen.retain(|case| case.id == args.name);
    }
    let Some(case) = chosen.pop() else {
        return Err(Failure::usage(format!("`{}` names no case, or more than one", args.name)));
    };
    let program = std::env::current_exe().context("cannot find this binary")?;
    let here = worker::probe(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    say(format_args!("case      {}\nwhy       {}", case.id, case.why));
    say(format_args!("digest    {}", case.digest()));
    let options = PlanOptions { fault: args.fault.clone(), ..PlanOptions::default() };
    let job = match Planner::new(&root, &registry, &here, options).plan(case) {
        Planned::Job(job) => job,
        Planned::NotRun(rows) => {
            rows.first()
                .into_iter()
                .for_each(|row| say(format_args!("\n{}", report::failure(row))));
            return Ok(ExitCode::of_rows(&rows));
        }
    };
    if let Some(files) = &job.files {
        say(format_args!("model     {}", root.relative(&files.model)));
        say(format_args!("golden    {}", root.relative(&files.golden)));
    }
    let line = serde_json::to_string(&Command::Run(job.clone())).context("cannot print the job")?;
    say(format_args!("worker    mlx-parity worker <<'EOF'\n{line}\nEOF"));
    let mut rows = Vec::new();
    let limit = std::time::Duration::from_secs(args.timeout);
    let mut running =
        Worker::start(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    if let Ended::Died { how } = running.run(&job, limit, |row| rows.push(row)) {
        say(format_args!("\nCRASHED {how}"));
        return Ok(ExitCode::Crashed);
    }
    let only_one = job.case.checks().contains(&args.name);
    rows.retain(|row| !only_one || row.id == args.name);
    say(format_args!("\n{}", report::table(&rows)));
    for row in rows.iter().filter(|row| row.failed()).take(1) {
        say(format_args!("\n{}", report::failure(row)));
        if args.explain {
            let text = crate::explain::explain(&root, &program, &job, row)
                .map_err(|error| Failure::new(ExitCode::Oracle, error))?;
            say(format_args!("\n{text}"));
        }
    }
    Ok(ExitCode::of_rows(&rows))
}
