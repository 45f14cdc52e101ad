//! `mlx-parity ledger`: which kernels are on, what waits to be accepted, what has gone stale.

use anyhow::Context as _;
use clap::Subcommand;
use mlx_parity_kernels::ledger::{Decision, Entry, Ledger, Place};

use super::{Common, Failure, Result, say};
use crate::{
    exit::ExitCode,
    gate::plan::place,
    ledger::{Store, StoreError, short, stale},
    report::columns,
    worker,
};

/// Show, review, accept or check the decisions about kernels
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Accepted decisions
    Show,
    /// What each pending decision would change, with its evidence
    Review,
    /// Take pending decisions (all, or those whose cell contains CELL); by a person, never while CI is set
    Accept {
        /// Part of a cell, such as `fused_swiglu/cpu-x86_64/bf16`
        #[arg(value_name = "CELL", default_value = "")]
        cell: String,
        /// Folder of recorded runs [default: reports/record]
        #[arg(long, value_name = "DIR")]
        record: Option<std::path::PathBuf>,
    },
    /// Exits 101 where a promoted kernel's sources or the version of MLX are not those of its evidence
    Check,
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let store = Store::new(&common.root()?);
    let done = match &args.action {
        Action::Show => store.accepted().map(|ledger| show(&ledger)),
        Action::Review => review(&store),
        Action::Accept { cell, record } => accept(&store.with_records(record.clone()), cell),
        Action::Check => return check(&store),
    };
    done.map_err(|error| Failure::new(exit(&error), error))
}

/// The exit code of an error about the ledger.
pub(super) fn exit(error: &StoreError) -> ExitCode {
    match error {
        StoreError::Ledger { .. } | StoreError::Evidence { .. } => ExitCode::Golden,
        StoreError::Record(_) | StoreError::Io { .. } => ExitCode::Internal,
        _ => ExitCode::Usage,
    }
}

type Done = std::result::Result<ExitCode, StoreError>;

fn show(ledger: &Ledger) -> ExitCode {
    if ledger.entries().is_empty() {
        say("no decision is accepted: every kernel is off");
        return ExitCode::Held;
    }
    let heads = ["cell", "mlx", "source", "decision", "record", "why"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    cells.extend(ledger.entries().iter().map(line));
    say(columns(&cells, &[]).join("\n"));
    ExitCode::Held
}

fn line(entry: &Entry) -> Vec<String> {
    let why: Vec<_> =
        entry.reasons().map(|of| format!("{} {}", of.evidence.code(), of.verdict.word())).collect();
    vec![
        entry.cell.to_string(),
        entry.cell.place.mlx.clone(),
        short(&entry.cell.digest).to_owned(),
        entry.decision.word().to_owned(),
        entry.record.clone(),
        why.join(", "),
    ]
}

fn review(store: &Store) -> Done {
    let Some(pending) = store.pending()? else {
        say("nothing is pending");
        return Ok(ExitCode::Held);
    };
    let accepted = store.accepted()?;
    for entry in pending.entries() {
        say(change(entry, accepted.find(&entry.cell)));
    }
    let promoted =
        pending.entries().iter().filter(|entry| entry.decision == Decision::Promote).count();
    let count = pending.entries().len();
    say(format_args!(
        "{count} pending, {promoted} of them promote  →  mlx-parity ledger accept [CELL]"
    ));
    Ok(ExitCode::Held)
}

fn change(entry: &Entry, before: Option<&Entry>) -> String {
    let now = entry.decision.word();
    let was = before.map_or("not decided", |entry| entry.decision.word());
    let cell = &entry.cell;
    let mut text = format!(
        "{cell}\n  {was} → {now}   source {}, MLX {}, record {}\n",
        short(&cell.digest),
        cell.place.mlx,
        entry.record
    );
    for finding in &entry.evidence {
        let (code, word) = (finding.evidence.code(), finding.verdict.word());
        text += &format!("  {code:<3} {word:<8} {}\n", finding.what);
    }
    text
}

fn accept(store: &Store, cell: &str) -> Done {
    for entry in store.accept(cell)? {
        say(format_args!("accepted  {}  {}", entry.decision.word(), entry.cell));
    }
    say("the engine reads the ledger when it is built: cargo build");
    Ok(ExitCode::Held)
}

fn check(store: &Store) -> Result {
    let ledger = store.accepted().map_err(|error| Failure::new(exit(&error), error))?;
    let promoted =
        ledger.entries().iter().filter(|entry| entry.decision == Decision::Promote).count();
    let found = stale(&ledger, &here()?);
    for stale in &found {
        say(format_args!("stale  {}: {}", stale.cell, stale.why));
    }
    say(format_args!("{promoted} promoted, {} stale", found.len()));
    Ok(if found.is_empty() { ExitCode::Held } else { ExitCode::Golden })
}

fn here() -> Result<Place> {
    let program = std::env::current_exe().context("cannot find this binary")?;
    let here = worker::probe(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    Ok(place(&here))
}
