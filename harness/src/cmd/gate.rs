//! `mlx-parity gate`: evidence about kernels, a decision for each cell, changes of the ledger that wait for a person.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Common, Failure, Result, say};
use crate::{
    exit::ExitCode,
    fingerprint::Fingerprint,
    gate::{
        card,
        fold::Decided,
        plan::{Asked, Plan},
        runner::{self, Gated, Observer, Options, gate},
    },
    ledger::Store,
    row::Row,
};

/// Weigh the evidence about fused kernels, and decide for each cell: promote, hold or reject
///
/// A cell is a kernel on a backend, chip and version of MLX, in a dtype and a class of shapes, of given sources. Exits
/// 100 where a kernel is rejected. Decisions wait in goldens/ledger.toml.new until `mlx-parity ledger accept`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Kernels by their ids [default: all]
    #[arg(value_name = "KERNEL")]
    pub kernels: Vec<String>,
    /// Less of everything: enough to reject, too little to promote; no change of the ledger
    #[arg(long)]
    pub quick: bool,
    /// Which evidence rejects which mutant, on the host and in emulation, and what the 56/64 rule alone would pass
    #[arg(long)]
    pub mutants: bool,
    /// Every number of the cells whose name contains CELL, of the last run that has them
    #[arg(long, value_name = "CELL", conflicts_with_all = ["kernels", "quick", "mutants", "resume"])]
    pub explain: Option<String>,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
    /// Finish the last run of the same plan that did not end
    #[arg(long)]
    pub resume: bool,
    /// Worker processes; times are measured by one alone [default: one a core]
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<usize>,
    /// Limit for one piece of evidence, in seconds
    #[arg(long, value_name = "S", default_value_t = 240)]
    pub timeout: u64,
    /// Folder for recorded runs [default: reports/record]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

/// The variable that pulls levers in the engine.
const LEVERS: &str = "MLX_PARITY_KERNELS";

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Decision cards and a table.
    Human,
    /// One JSON row a line, as evidence comes.
    Jsonl,
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let root = common.root()?;
    let program = std::env::current_exe().context("cannot find this binary")?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = args.jobs.unwrap_or(cores);
    if workers == 0 {
        return Err(Failure::usage("--jobs 0: wanted at least one worker"));
    }
    // Workers would inherit it, and so would the lanes with every lever off.
    if std::env::var_os(LEVERS).is_some() {
        return Err(Failure::usage(format!(
            "{LEVERS} is set: unset it, the gate pulls each lever itself"
        )));
    }
    let options = Options {
        asked: Asked { kernels: args.kernels.clone(), quick: args.quick, mutants: args.mutants },
        resume: args.resume,
        workers,
        limit: Duration::from_secs(args.timeout),
        record: args.record.clone(),
        program,
        command: super::command_line(),
    };
    let failed = |error: runner::GateError| Failure::new(error.exit(), error);
    if let Some(cell) = &args.explain {
        let base = args.record.clone().unwrap_or_else(|| root.record());
        let found = runner::recorded(&root, &options, cell).map_err(failed)?;
        return explain(&base, &found, cell);
    }
    let mut screen = Screen { format: args.format, bar: ProgressBar::hidden() };
    let gated = gate(&root, &options, &mut screen).map_err(failed)?;
    screen.bar.finish_and_clear();
    if args.format == Format::Human {
        show(args, &gated, &root.relative(&gated.record));
    }
    if !args.quick {
        propose(&Store::new(&root), &gated, args.format == Format::Human)?;
    }
    if gated.decided.is_empty() {
        eprintln!("mlx-parity: there is no kernel to gate");
    }
    Ok(gated.exit)
}

fn show(args: &Args, gated: &Gated, record: &str) {
    for decided in &gated.decided {
        say(card::card(decided));
    }
    if args.mutants {
        say(format_args!("{}\n", card::mutants(&gated.decided)));
    }
    say(card::table(&gated.decided));
    say(format_args!("record  {record}  ({:.1} s)", gated.seconds));
}

fn propose(store: &Store, gated: &Gated, tell: bool) -> Result<()> {
    let entries = gated.decided.iter().map(|decided| decided.entry.clone());
    let proposed =
        store.propose(entries).map_err(|error| Failure::new(super::ledger::exit(&error), error))?;
    if proposed && tell {
        say("pending ledger changes: goldens/ledger.toml.new  →  mlx-parity ledger review");
    }
    Ok(())
}

fn explain(base: &std::path::Path, found: &[(PathBuf, Decided)], cell: &str) -> Result {
    if found.is_empty() {
        let base = base.display();
        return Err(Failure::new(
            ExitCode::NothingRan,
            anyhow::anyhow!("no run in {base} has a cell `{cell}`; run `mlx-parity gate`"),
        ));
    }
    for (record, decided) in found {
        say(format_args!("{}\nrecord  {}\n", card::explain(decided), record.display()));
    }
    Ok(ExitCode::Held)
}

/// stdout gets data, stderr a progress bar where there is a terminal.
struct Screen {
    format: Format,
    bar: ProgressBar,
}

impl Observer for Screen {
    fn planned(&mut self, here: &Fingerprint, plan: &Plan, rows: usize) {
        if self.format == Format::Human {
            let Fingerprint { mlx, backend, arch, os, chip, .. } = here;
            let version = env!("CARGO_PKG_VERSION");
            let cells = plan.cells.len();
            say(format_args!(
                "mlx-parity {version} · MLX {mlx} {backend} · {arch}-{os} ({chip}) · {cells} cells, {rows} rows of evidence\n"
            ));
        }
        if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} {wide_msg}");
            self.bar = ProgressBar::new(rows as u64)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
    }

    fn row(&mut self, row: &Row) {
        self.bar.inc(1);
        self.bar.set_message(row.case.clone());
        if self.format == Format::Jsonl {
            let mut out = std::io::stdout().lock();
            let line = serde_json::to_string(row).unwrap_or_default();
            // A closed pipe ends the reader's interest, not the run or its record.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    }
}
