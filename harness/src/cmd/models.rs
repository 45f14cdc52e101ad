//! `mlx-parity models`: every model type the engine loads, and what proves that it is right.

#[cfg(feature = "engine")]
use std::path::PathBuf;

use super::{Common, Result};
#[cfg(feature = "engine")]
use super::{Failure, say};
#[cfg(feature = "engine")]
use crate::{
    case::{self, Case, CaseError},
    exit::ExitCode,
    fingerprint::Fingerprint,
    golden::{Golden, Store},
    model::Registry,
    record,
    report::columns,
    root::Root,
    row::Row,
    support::{self, Status, SyntheticModel, TypeSupport},
    synthetic::{self, Lane, inventory},
    weights::ModelDigests,
    worker,
};

/// List the model types the engine loads, and which goldens prove them
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Folder of recorded runs [default: reports/record]
    #[arg(long, value_name = "DIR")]
    pub record: Option<std::path::PathBuf>,
}

/// Without the engine no type is loaded.
#[cfg(not(feature = "engine"))]
pub fn run(_common: &Common, _args: &Args) -> Result {
    Err(super::Failure::usage("this build has no engine (built with --no-default-features)"))
}

/// Runs the command. It reports; only a broken project or engine is an error.
#[cfg(feature = "engine")]
pub fn run(common: &Common, args: &Args) -> Result {
    use anyhow::Context as _;

    let root = common.root()?;
    let program = std::env::current_exe().context("cannot find this binary")?;
    let here = worker::probe(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    let cases = case::load_all(&root.cases()).map_err(usage)?;
    let registry = Registry::load(&root).map_err(usage)?;
    let models = models(&root)?;
    let runs = Runs::read(&args.record.clone().unwrap_or_else(|| root.record()), &here)?;
    let evidence = Evidence { root: &root, registry: &registry, here: &here, runs: &runs };
    let types = mlx_parity_engine::supported_model_types();
    let rungs = |model_type: &str| {
        mlx_parity_engine::rungs(model_type).iter().map(ToString::to_string).collect()
    };
    let mut status = |case: &Case| evidence.status(case);
    let table = support::table(&types, &models, &cases, &rungs, &mut status);
    say(format_args!(
        "mlx-parity {} · MLX {} {} · goldens {}\n",
        env!("CARGO_PKG_VERSION"),
        here.mlx,
        here.backend,
        here.class()
    ));
    say(sections(&table));
    Ok(ExitCode::Held)
}

#[cfg(feature = "engine")]
fn usage(error: CaseError) -> Failure {
    Failure::new(ExitCode::Usage, error)
}

#[cfg(feature = "engine")]
fn models(root: &Root) -> Result<Vec<SyntheticModel>> {
    let bad = |error| Failure::new(ExitCode::Usage, error);
    let folders = synthetic::folders(&root.synthetic()).map_err(bad)?;
    let model = |(name, dir): (String, PathBuf)| {
        let (config, _) = inventory::read_config(&dir).map_err(bad)?;
        let model_type = config["model_type"].as_str().unwrap_or_default().to_owned();
        Ok(SyntheticModel { name, model_type })
    };
    folders.into_iter().map(model).collect()
}

/// Recorded runs of this class of machines, the newest first, without deliberate faults.
#[cfg(feature = "engine")]
struct Runs(Vec<Vec<Row>>);

#[cfg(feature = "engine")]
impl Runs {
    fn read(base: &std::path::Path, here: &Fingerprint) -> Result<Self> {
        let bad = |error| Failure::new(ExitCode::Internal, error);
        let mut found = Vec::new();
        for dir in record::run_dirs(base).map_err(bad)? {
            let info = record::read_run(&dir).map_err(bad)?;
            let faulty = info.command.iter().any(|word| word.starts_with("--fault"));
            let replays = info.checks.iter().any(|id| id.starts_with('l'));
            if !faulty && replays && info.fingerprint.class() == here.class() {
                found.push((info.started, dir));
            }
        }
        found.sort();
        let rows = found.iter().rev().map(|(_, dir)| record::read(dir).map_err(bad));
        Ok(Self(rows.collect::<Result<_>>()?))
    }

    /// The rows of the newest run that checked the case.
    fn latest(&self, case: &Case) -> &[Row] {
        let checked = |rows: &&Vec<Row>| rows.iter().any(|row| row.case == case.id);
        self.0.iter().find(checked).map_or(&[], Vec::as_slice)
    }
}

/// Where the status of a case is known from.
#[cfg(feature = "engine")]
struct Evidence<'a> {
    root: &'a Root,
    registry: &'a Registry,
    here: &'a Fingerprint,
    runs: &'a Runs,
}

#[cfg(feature = "engine")]
impl Evidence<'_> {
    fn status(&self, case: &Case) -> Status {
        match self.fits(case) {
            Ok(()) => Status::of_rows(case, self.runs.latest(case)),
            Err(why) => Status::NoGolden { why },
        }
    }

    /// Is there a committed golden, of this case and these weights?
    fn fits(&self, case: &Case) -> std::result::Result<(), String> {
        if let Some(reason) = case.not_frozen() {
            return Err(format!("{}: {reason}", case.id));
        }
        let store = Store::new(&self.root.frozen(), self.here);
        if !store.has(case) {
            return Err(format!("{}: none committed for {}", case.id, self.here.class()));
        }
        let model = case.model().and_then(|name| self.registry.get(name));
        let model = model.ok_or("the model is not registered")?;
        let dir = model.ready(self.root).map_err(|error| error.to_string())?;
        let digests = ModelDigests::of(&dir).map_err(|error| error.to_string())?;
        Golden::open(&store.path_of(&case.id))
            .and_then(|golden| golden.fit(case, &digests.weights, &digests.config, self.here))
            .map_err(|error| error.to_string())
    }
}

#[cfg(feature = "engine")]
fn sections(table: &[TypeSupport]) -> String {
    let (mut supported, mut not_run, mut failed, mut none) = Default::default();
    for entry in table {
        let section: &mut Vec<&TypeSupport> = match entry.status() {
            Status::Held { .. } => &mut supported,
            Status::NotRun => &mut not_run,
            Status::Failed { .. } => &mut failed,
            Status::NoGolden { .. } => &mut none,
        };
        section.push(entry);
    }
    let tally = format!(
        "{} types: {} supported · {} not run here · {} failed · {} without golden",
        table.len(),
        supported.len(),
        not_run.len(),
        failed.len(),
        none.len()
    );
    let parts = [
        section("supported (golden held when last run)", &supported),
        section("not known (golden not run here: mlx-parity verify --tier l1,l2)", &not_run),
        section("not supported (golden not held)", &failed),
        section("not supported (no golden)", &none),
        Some(tally),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

#[cfg(feature = "engine")]
fn section(title: &str, entries: &[&TypeSupport]) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let mut cells = vec![["tier", "model_type", "rung"].map(str::to_owned).to_vec()];
    cells[0].extend(Lane::ALL.map(|lane| lane.label().to_owned()));
    cells[0].push("models".to_owned());
    let mut notes = Vec::new();
    for entry in entries {
        let tier = entry.tier.map_or("–", |tier| tier.label());
        let rungs = entry.rungs.join(", ");
        let rungs = if rungs.is_empty() { "none".to_owned() } else { rungs };
        let mut line = vec![tier.to_owned(), entry.model_type.clone(), rungs];
        line.extend(entry.lanes.values().map(ToString::to_string));
        line.push(entry.models.join(", "));
        cells.push(line);
        match entry.status() {
            Status::Failed { how } => notes.push(format!("  {how}")),
            Status::NoGolden { why } if entry.tier.is_some() => notes.push(format!("  {why}")),
            Status::Held { expected: 1.., .. } if notes.is_empty() => {
                notes.push("* fails as goldens/expectations.toml says it must".to_owned());
            }
            _ => {}
        }
    }
    Some([vec![title.to_owned(), columns(&cells, &[]).join("\n")], notes].concat().join("\n"))
}
