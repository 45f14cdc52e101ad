//! `mlx-parity metal`: Metal kernels without a Mac.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use mlx_parity_msl_emu::{Mode, Options};

use super::{Common, Failure, Result, say};
use crate::{
    case::{self, Case, Kind},
    exit::ExitCode,
    metal::{Files, MetalCase, bounds},
    report,
    root::Root,
    row::Row,
    worker::{self, Job, PoolOptions},
};

/// Run Metal kernels on the CPU: what they do wrong is found, what they do right is not proven
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with a kernel.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Run the body of a kernel on the cases of a file
    Run(RunArgs),
}

/// A kernel and its cases.
#[derive(Debug, Clone, clap::Args)]
pub struct RunArgs {
    /// The body of the kernel; it takes the place of the cases' own
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The TOML file with the cases [default: FILE with .toml for its extension]
    #[arg(long, value_name = "TOML")]
    pub case: Option<PathBuf>,
    /// Only cases whose id contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Only in these modes: fibers, fibers-address, fibers-plain, threads [default: the cases' own]
    #[arg(long, value_delimiter = ',', value_parser = mode)]
    pub mode: Vec<Mode>,
    /// Orders of threads and groups to try [default: the cases' own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub orders: Option<u64>,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = super::verify::Format::Human)]
    pub format: super::verify::Format,
    /// Limit for one case, in seconds
    #[arg(long, value_name = "S", default_value_t = 120)]
    pub timeout: u64,
}

fn mode(text: &str) -> std::result::Result<Mode, String> {
    Mode::ALL
        .into_iter()
        .find(|mode| mode.name() == text)
        .ok_or_else(|| format!("wanted one of {}", Mode::ALL.map(Mode::name).join(", ")))
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let Action::Run(args) = &args.action;
    let jobs = args.jobs(common.root().ok().as_ref())?;
    let program = std::env::current_exe().context("cannot find this binary")?;
    worker::probe(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    let pool = PoolOptions { program, workers: 1, limit: Duration::from_secs(args.timeout) };
    let mut rows = Vec::new();
    let mut failed = None;
    worker::run(&jobs, &pool, |row| {
        if args.format == super::verify::Format::Jsonl {
            match serde_json::to_string(&row) {
                Ok(line) => say(line),
                Err(error) => failed = Some(error),
            }
        }
        rows.push(row);
    });
    failed.map_or(Ok(()), Err).context("cannot write a row")?;
    if args.format == super::verify::Format::Human {
        human(&rows);
    }
    Ok(ExitCode::of_rows(&rows))
}

fn human(rows: &[Row]) {
    say(report::table(rows));
    let failures: Vec<_> = rows.iter().filter(|row| row.failed()).collect();
    for row in &failures {
        // Cases outside of a project have no other way to be replayed than this command.
        let text = report::failure(row);
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("replay "));
        say(format_args!("\n{}", lines.collect::<Vec<_>>().join("\n")));
    }
    let not_run = rows.iter().find(|row| matches!(row.outcome, crate::row::Outcome::NotRun { .. }));
    if let Some(row) = not_run.filter(|_| failures.is_empty()) {
        say(format_args!("\n{}", report::failure(row)));
    }
    say(format_args!("\n{} launches: {} failed", rows.len(), failures.len()));
}

impl RunArgs {
    fn jobs(&self, root: Option<&Root>) -> Result<Vec<Job>> {
        let toml = self.case.clone().unwrap_or_else(|| self.file.with_extension("toml"));
        if !self.file.is_file() {
            return Err(Failure::usage(format!("no kernel {}", self.file.display())));
        }
        let cases = case::load_metal(&toml)
            .map_err(|error| Failure::new(ExitCode::Usage, anyhow::Error::from(error)))?;
        let toml = std::path::absolute(toml).context("cannot find the folder of the cases")?;
        let files = Files {
            folder: toml.parent().unwrap_or(Path::new("/")).to_owned(),
            cache: root.map_or_else(|| Options::default().cache, Root::emulated),
            include: root.map(Root::metal_headers).unwrap_or_default(),
        };
        let only = |case: &Case| self.only.as_ref().is_none_or(|text| case.id.contains(text));
        let chosen = cases.into_iter().filter(only);
        chosen.map(|case| self.job(case, &files, root)).collect()
    }

    fn job(&self, mut case: Case, files: &Files, root: Option<&Root>) -> Result<Job> {
        let id = case.id.clone();
        let Kind::Metal(metal) = &mut case.kind else {
            return Err(Failure::usage(format!("`{id}` is no case of a kernel")));
        };
        metal.source = self.source(&files.folder)?;
        if !self.mode.is_empty() {
            metal.modes.clone_from(&self.mode);
        }
        metal.orders = self.orders.unwrap_or(metal.orders);
        let bounds = Self::bounds(metal, &id, root)?;
        let (subject, dtype) = (metal.kernel.clone(), metal.dtype.name().to_owned());
        Ok(Job {
            case,
            subject,
            dtype,
            files: None,
            model: None,
            metal: Some(files.clone()),
            bounds,
            notes: Vec::new(),
            fault: None,
        })
    }

    fn bounds(metal: &MetalCase, id: &str, root: Option<&Root>) -> Result<Vec<crate::ops::Bound>> {
        bounds(metal, root.map(Root::tolerances_file).as_deref())
            .map_err(|message| Failure::usage(format!("{id}: {message}")))
    }

    /// The kernel, as messages are to name it: by its name alone where it lies beside the cases.
    fn source(&self, folder: &Path) -> Result<PathBuf> {
        let file = std::path::absolute(&self.file).context("cannot find the kernel")?;
        Ok(file.strip_prefix(folder).map_or(file.clone(), Path::to_owned))
    }
}
