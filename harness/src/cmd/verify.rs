//! `mlx-parity verify`: run checks, print a table, record the run.

use std::{io::IsTerminal as _, io::Write as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Common, Failure, Result, say};
use crate::{
    case::{Filter, parse_shard},
    composition::check_environment,
    report::{self, Context},
    row::{Row, Tier},
    verify::{Observer, Options, verify},
};

/// Run checks: the engine against frozen or live oracle answers
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    /// Only cases whose id contains one of these, or the case of this check
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Only these tiers: ops, l1, l2, l3, vjp, meta, metal
    #[arg(long, value_delimiter = ',')]
    pub tier: Vec<Tier>,
    /// Of tiers ops, vjp, meta and metal, only the quick cases
    #[arg(long)]
    pub quick: bool,
    /// The large cases too: ops of 2^31 elements and more, which need tens of gigabytes of memory, and
    /// trajectories of larger models, which need minutes each
    #[arg(long)]
    pub large: bool,
    /// Ask the oracles anew on this machine and compare with that, and that with the committed goldens
    #[arg(long)]
    pub live: bool,
    /// Worker processes [default: one a core]
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<usize>,
    /// Only the i-th of n parts
    #[arg(long, value_name = "I/N", value_parser = parse_shard)]
    pub shard: Option<(usize, usize)>,
    /// Finish the last run of the same plan that did not end
    #[arg(long)]
    pub resume: bool,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
    /// Limit for one case, in seconds
    #[arg(long, value_name = "S", default_value_t = 120)]
    pub timeout: u64,
    /// Folder for recorded runs [default: reports/record]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Make the engine wrong on purpose, to see the harness catch it (debug builds)
    #[arg(long, value_name = "NAME")]
    pub fault: Option<String>,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table and the failures.
    Human,
    /// One JSON row a line, as checks end.
    Jsonl,
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let root = common.root()?;
    check_environment().map_err(Failure::usage)?;
    let program = std::env::current_exe().context("cannot find this binary")?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = args.jobs.unwrap_or(cores);
    if workers == 0 {
        return Err(Failure::usage("--jobs 0: wanted at least one worker"));
    }
    let options = Options {
        filter: Filter {
            ids: args.filter.clone(),
            tiers: args.tier.clone(),
            quick: args.quick,
            large: args.large,
            shard: args.shard,
        },
        live: args.live,
        resume: args.resume,
        workers,
        limit: Duration::from_secs(args.timeout),
        fault: args.fault.clone(),
        record: args.record.clone(),
        program,
        command: super::command_line(),
    };
    let mut screen = Screen { format: args.format, bar: ProgressBar::hidden() };
    let done =
        verify(&root, &options, &mut screen).map_err(|error| Failure::new(error.exit(), error))?;
    screen.bar.finish_and_clear();
    if args.format == Format::Human {
        let mut parts = vec![report::table(&done.rows), report::expected(&done.rows)];
        parts.extend(done.matrix.as_ref().map(|matrix| report::matrix(matrix, &done.rows)));
        parts.push(report::failures(&done.rows));
        parts.push(report::tally(&done.rows, &done.context));
        parts.retain(|part| !part.is_empty());
        say(format_args!("{}", parts.join("\n\n")));
    }
    if done.rows.is_empty() {
        eprintln!("mlx-parity: no check was selected");
    }
    Ok(done.exit)
}

/// stdout gets data, stderr a progress bar where there is a terminal.
struct Screen {
    format: Format,
    bar: ProgressBar,
}

impl Observer for Screen {
    fn planned(&mut self, context: &Context, checks: usize) {
        if self.format == Format::Human {
            say(format_args!("{}\n", report::header(context, checks)));
        }
        if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} {wide_msg}");
            self.bar = ProgressBar::new(checks as u64)
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
