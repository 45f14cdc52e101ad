//! `mlx-parity store`: what teachers are kept, whether they are whole, and making room.

use std::path::PathBuf;

use clap::Subcommand;

use super::{Common, Failure, Result, say, size};
use crate::{
    exit::ExitCode,
    report::columns,
    store::{DEFAULT_BUDGET, Entry, State, Store, StoreError},
};

/// List, verify or shrink the store of teachers' logits
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Its folder [default: target/mlx/teachers of the project]
    #[arg(long, global = true, value_name = "DIR")]
    pub store: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Every entry, least recently used first
    List,
    /// Read every entry against its checksums; exits 101 where one is damaged
    Verify {
        /// Remove what is damaged
        #[arg(long)]
        remove: bool,
    },
    /// Remove what ended writers left and, least recently used first, what is over the budget
    Gc {
        /// Bytes to keep: `500MiB`, `8GiB`
        #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "8GiB")]
        budget: u64,
    },
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let dir = match &args.store {
        Some(dir) => dir.clone(),
        None => common.root()?.teachers(),
    };
    let budget = if let Action::Gc { budget } = args.action { budget } else { DEFAULT_BUDGET };
    let done = Store::open(dir, budget).and_then(|store| match args.action {
        Action::List => list(&store),
        Action::Verify { remove } => verify(&store, remove),
        Action::Gc { .. } => collect(&store),
    });
    done.map_err(|error| Failure::new(exit(&error), error))
}

fn exit(error: &StoreError) -> ExitCode {
    match error {
        StoreError::Damaged { .. } | StoreError::Schema { .. } => ExitCode::Golden,
        _ => ExitCode::Usage,
    }
}

type Done = std::result::Result<ExitCode, StoreError>;

fn list(store: &Store) -> Done {
    let entries = store.entries()?;
    let heads = ["entry", "state", "size", "rows", "vocab", "dtype", "used", "composition"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    cells.extend(entries.iter().map(line));
    say(columns(&cells, &[2, 3, 4]).join("\n"));
    let total = entries.iter().map(|entry| entry.bytes).sum();
    let (count, total) = (counted(entries.len()), size::text(total));
    say(format_args!("\n{count}, {total} in {}", store.dir().display()));
    Ok(ExitCode::Held)
}

fn counted(entries: usize) -> String {
    format!("{entries} {}", if entries == 1 { "entry" } else { "entries" })
}

fn line(entry: &Entry) -> Vec<String> {
    let short = entry.digest[..12].to_owned();
    let used = jiff::Timestamp::try_from(entry.used)
        .map_or_else(|_| String::new(), |used| used.strftime("%Y-%m-%d %H:%M").to_string());
    let size = size::text(entry.bytes);
    let (state, [rows, vocab, dtype, composition]) = match (entry.state, entry.key()) {
        (State::Partial, _) => ("partial", [const { String::new() }; 4]),
        (State::Whole, Err(_)) => ("damaged", [const { String::new() }; 4]),
        (State::Whole, Ok(key)) => (
            "whole",
            [key.rows.to_string(), key.vocab.to_string(), key.dtype.to_string(), key.composition],
        ),
    };
    vec![short, state.to_owned(), size, rows, vocab, dtype, used, composition]
}

fn verify(store: &Store, remove: bool) -> Done {
    let entries = store.entries()?;
    let whole: Vec<_> = entries.iter().filter(|entry| entry.state == State::Whole).collect();
    let mut damaged = 0;
    for entry in &whole {
        match entry.verify(store) {
            Ok(rows) => say(format_args!("whole    {}  {rows} rows", &entry.digest[..12])),
            Err(error @ (StoreError::Damaged { .. } | StoreError::Schema { .. })) => {
                damaged += 1;
                say(format_args!("damaged  {}  {error}", &entry.digest[..12]));
                if remove {
                    store.remove(entry)?;
                    say(format_args!("removed  {}", &entry.digest[..12]));
                }
            }
            Err(error) => return Err(error),
        }
    }
    say(format_args!("\n{}, {damaged} damaged", counted(whole.len())));
    Ok(match (damaged, whole.len()) {
        (_, 0) => ExitCode::NothingRan,
        (0, _) => ExitCode::Held,
        _ => ExitCode::Golden,
    })
}

fn collect(store: &Store) -> Done {
    let removed = store.collect()?;
    for entry in &removed {
        say(format_args!("removed  {}  {}", &entry.digest[..12], size::text(entry.bytes)));
    }
    let freed = removed.iter().map(|entry| entry.bytes).sum();
    let left = store.entries()?.iter().map(|entry| entry.bytes).sum();
    say(format_args!(
        "\n{} freed, {} left of a budget of {}",
        size::text(freed),
        size::text(left),
        size::text(store.budget())
    ));
    Ok(ExitCode::Held)
}
