//! `mlx-parity goldens`: what is pending, stale or orphaned; accepting and rejecting.

use anyhow::Context as _;
use clap::Subcommand;

use super::{Common, Failure, Result, say};
use crate::{
    case::{self, Case, Filter},
    exit::ExitCode,
    golden::{self, Golden, GoldenError, Store},
    root::Root,
    worker,
};

/// List, review, accept or reject goldens
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Goldens of this class of machines: accepted, pending, orphaned; exits 101 on orphans
    List,
    /// What each pending golden would change
    Review,
    /// Take pending goldens (all, or those whose case contains a filter)
    Accept {
        /// Parts of case ids
        filter: Vec<String>,
        /// Take those frozen live on this machine instead
        #[arg(long)]
        live: bool,
    },
    /// Drop pending goldens (all, or those whose case contains a filter)
    Reject {
        /// Parts of case ids
        filter: Vec<String>,
    },
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let root = common.root()?;
    let cases =
        case::load_all(&root.cases()).map_err(|error| Failure::new(ExitCode::Usage, error))?;
    let program = std::env::current_exe().context("cannot find this binary")?;
    let here = worker::probe(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    let store = Store::new(&root.frozen(), &here);
    let done = match &args.action {
        Action::List => list(&root, &store, &cases),
        Action::Review => review(&store),
        Action::Accept { filter, live: false } => accept(&root, &store, filter),
        Action::Accept { filter, live: true } => {
            accept_live(&root, &Store::new(&root.live(), &here), &store, &cases, filter)
        }
        Action::Reject { filter } => reject(&store, filter),
    };
    done.map_err(|error| Failure::new(ExitCode::Golden, error))
}

type Done = std::result::Result<ExitCode, GoldenError>;

fn list(root: &Root, store: &Store, cases: &[Case]) -> Done {
    for case in cases {
        let word = if store.has(case) { "accepted" } else { "none    " };
        say(format_args!("{word}  {}", case.id));
    }
    for pending in golden::pending(store)? {
        say(format_args!("pending   {}", pending.case));
    }
    let orphans = golden::orphans(store, cases)?;
    for path in &orphans {
        say(format_args!("orphan    {}: no case asks for it; delete it", root.relative(path)));
    }
    Ok(if orphans.is_empty() { ExitCode::Held } else { ExitCode::Golden })
}

fn review(store: &Store) -> Done {
    let pending = golden::pending(store)?;
    if pending.is_empty() {
        say(format_args!("nothing is pending"));
    }
    for one in pending {
        let new = Golden::open(&one.path)?.manifest;
        say(format_args!("{}", one.case));
        say(format_args!("  oracle    {} {:?}", new.oracle.name, new.oracle.packages));
        say(format_args!("  weights   {}", new.weights));
        say(format_args!("  steps     {:?}", new.steps));
        say(format_args!("  strength  {}", new.strength));
        match &one.replaces {
            None => say(format_args!("  new: no golden is there yet")),
            Some(old) => {
                let old = Golden::open(old)?.manifest;
                let same = |name: &&String| old.tensors.get(*name) == new.tensors.get(*name);
                let (equal, changed): (Vec<_>, Vec<_>) = new.tensors.keys().partition(same);
                say(format_args!(
                    "  replaces: {} tensors equal, changed: {changed:?}",
                    equal.len()
                ));
            }
        }
    }
    Ok(ExitCode::Held)
}

fn chosen(filter: &[String], case: &str) -> bool {
    filter.is_empty() || filter.iter().any(|part| case.contains(part.as_str()))
}

fn accept(root: &Root, store: &Store, filter: &[String]) -> Done {
    for pending in golden::pending(store)?.iter().filter(|one| chosen(filter, &one.case)) {
        golden::accept(pending)?;
        say(format_args!("accepted  {}", root.relative(&store.path_of(&pending.case))));
    }
    Ok(ExitCode::Held)
}

fn accept_live(
    root: &Root,
    live: &Store,
    store: &Store,
    cases: &[Case],
    filter: &[String],
) -> Done {
    let filter = Filter { ids: filter.to_vec(), ..Filter::default() };
    for case in filter.select(cases.to_vec()) {
        if live.has(&case) {
            say(format_args!(
                "accepted  {}",
                root.relative(&golden::accept_live(&case, live, store)?)
            ));
        }
    }
    Ok(ExitCode::Held)
}

fn reject(store: &Store, filter: &[String]) -> Done {
    for pending in golden::pending(store)?.iter().filter(|one| chosen(filter, &one.case)) {
        golden::reject(pending)?;
        say(format_args!("rejected  {}", pending.case));
    }
    Ok(ExitCode::Held)
}
