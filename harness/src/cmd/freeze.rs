//! `mlx-parity freeze`: ask the oracles; the answers wait as pending goldens.

use anyhow::Context as _;

use super::{Common, Failure, Result, say};
use crate::{
    case::{self, Filter},
    exit::ExitCode,
    golden::{Store, in_ci},
    model::Registry,
    oracle::{FreezeError, Launch, Oracle, freeze},
    weights::ModelDigests,
    worker,
};

/// Ask the oracles for goldens; they wait in `….new` folders for `goldens accept`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Cases to freeze: parts of ids, or names of models
    #[arg(value_name = "MODEL|CASE", required = true)]
    pub cases: Vec<String>,
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let root = common.root()?;
    let golden = |error: crate::golden::GoldenError| Failure::new(ExitCode::Golden, error);
    if in_ci() {
        return Err(golden(crate::golden::GoldenError::InCi));
    }
    let usage = |error: case::CaseError| Failure::new(ExitCode::Usage, error);
    let all = case::load_all(&root.cases()).map_err(usage)?;
    let registry = Registry::load(&root).map_err(usage)?;
    let filter = Filter { ids: args.cases.clone(), ..Filter::default() };
    let chosen: Vec<_> = all
        .iter()
        .filter_map(|case| Some((case, case.replay()?)))
        .filter(|(case, replay)| {
            args.cases.contains(&replay.model) || !filter.select(vec![(*case).clone()]).is_empty()
        })
        .collect();
    if chosen.is_empty() {
        return Err(Failure::new(ExitCode::NothingRan, anyhow::anyhow!("no case was selected")));
    }
    let program = std::env::current_exe().context("cannot find this binary")?;
    let here = worker::probe(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    let store = Store::new(&root.frozen(), &here);
    let mut exit = ExitCode::Held;
    let mut oracle: Option<Oracle> = None;
    for (case, replay) in chosen {
        let model = registry.get(&replay.model).ok_or_else(|| {
            Failure::usage(format!("{}: model `{}` is not registered", case.id, replay.model))
        })?;
        if !model.provisioned(&root) {
            say(format_args!(
                "not frozen  {}  model not provisioned: {}",
                case.id, model.provision
            ));
            continue;
        }
        let dir = model.dir(&root);
        let digests =
            ModelDigests::of(&dir).map_err(|error| Failure::new(ExitCode::Golden, error))?;
        let mut running = match oracle.take() {
            Some(running) if running.hello().oracle == replay.oracle => running,
            _ => Oracle::start(Launch::of(&root, &replay.oracle))
                .map_err(|error| Failure::new(ExitCode::Oracle, error))?,
        };
        let pending = store.path_of(&format!("{}.new", case.id));
        match freeze(&mut running, case, replay, &dir, &digests, &here, &pending) {
            Ok(_) => say(format_args!("pending     {}  {}", case.id, root.relative(&pending))),
            Err(FreezeError::Golden(error)) => {
                say(format_args!("refused     {error}"));
                exit = ExitCode::Golden;
            }
            Err(FreezeError::Oracle(error)) => return Err(Failure::new(ExitCode::Oracle, error)),
        }
        oracle = Some(running);
    }
    say(format_args!(
        "\nlook at them with `mlx-parity goldens review`, take them with `goldens accept`"
    ));
    Ok(exit)
}
