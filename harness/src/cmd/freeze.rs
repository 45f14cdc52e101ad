//! `mlx-parity freeze`: ask the oracles; the answers wait as pending goldens.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{Common, Failure, Result, say};
use crate::{
    case::{self, Case, CaseError, Filter, OWN},
    exit::ExitCode,
    fingerprint::Fingerprint,
    golden::{GoldenError, Store, in_ci},
    model::Registry,
    oracle::{Folders, FreezeError, Launch, Oracle, freeze, freeze_own},
    root::Root,
    synthetic::{self, AskError, Lane},
    weights::ModelDigests,
    worker,
};

/// Ask the oracles for goldens; they wait in `….new` folders for `goldens accept`
///
/// For the name of a folder in goldens/synthetic the list of its tensors is asked too, and a case
/// file written where none names it.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Cases to freeze: parts of ids, or names of models
    #[arg(value_name = "MODEL|CASE", required = true)]
    pub cases: Vec<String>,
}

/// The oracle that tells the tensors of a model no case names yet.
const DEFAULT_ORACLE: &str = "mlx-lm";

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let root = common.root()?;
    if in_ci() {
        return Err(Failure::new(ExitCode::Golden, GoldenError::InCi));
    }
    let mut oracles = Oracles { root: &root, running: HashMap::new() };
    let synthetic = synthetic_names(&root, &args.cases)?;
    for name in &synthetic {
        prepare(&root, name, &mut oracles)?;
    }
    let cases = chosen(&root, &args.cases, &synthetic)?;
    if cases.is_empty() {
        return Err(Failure::new(ExitCode::NothingRan, anyhow::anyhow!("no case was selected")));
    }
    let program = std::env::current_exe().context("cannot find this binary")?;
    let here = worker::probe(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    let registry = Registry::load(&root).map_err(usage)?;
    let mut exit = ExitCode::Held;
    for case in &cases {
        match freeze_one(&root, &registry, &here, &mut oracles, case)? {
            ExitCode::Held => {}
            other => exit = other,
        }
    }
    say(format_args!(
        "\nlook at them with `mlx-parity goldens review`, take them with `goldens accept`"
    ));
    Ok(exit)
}

fn usage(error: CaseError) -> Failure {
    Failure::new(ExitCode::Usage, error)
}

/// The arguments that name a folder of `goldens/synthetic`.
fn synthetic_names(root: &Root, arguments: &[String]) -> Result<Vec<String>> {
    let folders = synthetic::folders(&root.synthetic())
        .map_err(|error| Failure::new(ExitCode::Usage, error))?;
    let names = folders.into_iter().map(|(name, _)| name);
    Ok(names.filter(|name| arguments.contains(name)).collect())
}

fn is_lane_of(model: &str, name: &str) -> bool {
    let lane = model.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    lane.is_some_and(|lane| Lane::ALL.iter().any(|known| known.name() == lane))
}

fn chosen(root: &Root, arguments: &[String], synthetic: &[String]) -> Result<Vec<Case>> {
    // The name of a folder stands for its lanes alone: `gemma` does not mean `gemma2`.
    let ids: Vec<_> = arguments.iter().filter(|name| !synthetic.contains(name)).cloned().collect();
    let filter = Filter { ids, ..Filter::default() };
    let all = case::load_all(&root.cases()).map_err(usage)?;
    let wanted = |case: &Case| {
        let model = case.model().unwrap_or_default();
        arguments.iter().any(|name| name == model)
            || synthetic.iter().any(|name| is_lane_of(model, name))
            || (!filter.ids.is_empty() && !filter.select(vec![case.clone()]).is_empty())
    };
    Ok(all.into_iter().filter(|case| case.has_golden() && wanted(case)).collect())
}

/// Asks for the tensors of a synthetic model, and gives it a case if it has none.
fn prepare(root: &Root, name: &str, oracles: &mut Oracles<'_>) -> Result<()> {
    let all = case::load_all(&root.cases()).map_err(usage)?;
    let mut own = all.iter().filter(|case| case.has_golden());
    let own = own.find(|case| case.model().is_some_and(|model| is_lane_of(model, name)));
    let oracle = own.map_or(DEFAULT_ORACLE, Case::oracle);
    let dir = root.synthetic().join(name);
    let changed = synthetic::ask(oracles.get(oracle)?, &dir).map_err(|error| {
        let exit = match error {
            AskError::Synthetic(_) => ExitCode::Usage,
            AskError::Oracle(_) => ExitCode::Oracle,
        };
        Failure::new(exit, anyhow::Error::new(error).context(format!("goldens/synthetic/{name}")))
    })?;
    if changed {
        say(format_args!("tensors     goldens/synthetic/{name}/tensors.json"));
    }
    if own.is_none() {
        let path = root.cases().join("l1").join(format!("{name}.toml"));
        write_case(&path, name)?;
        say(format_args!("case        {}", root.relative(&path)));
    }
    Ok(())
}

fn write_case(path: &Path, name: &str) -> Result<()> {
    let text = synthetic::case_file(name);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(|error| Failure::new(ExitCode::Usage, error))
}

fn freeze_one(
    root: &Root,
    registry: &Registry,
    here: &Fingerprint,
    oracles: &mut Oracles<'_>,
    case: &Case,
) -> Result {
    let name = case.model().unwrap_or_default();
    let model = registry
        .get(name)
        .ok_or_else(|| Failure::usage(format!("{}: model `{name}` is not registered", case.id)))?;
    if let Some(reason) = case.not_frozen() {
        say(format_args!("not frozen  {}  {reason}", case.id));
        return Ok(ExitCode::Held);
    }
    let dir = match model.ready(root) {
        Ok(dir) => dir,
        Err(crate::model::NotReady::Synthetic(error)) => {
            return Err(Failure::new(ExitCode::Usage, error));
        }
        Err(error) => {
            say(format_args!("not frozen  {}  {error}", case.id));
            return Ok(ExitCode::Held);
        }
    };
    let draft = case.draft().map(|name| draft_dir(root, registry, name)).transpose()?;
    let digests = ModelDigests::of(&dir).map_err(|error| Failure::new(ExitCode::Golden, error))?;
    let store = Store::new(&root.frozen(), here);
    let pending = store.path_of(&format!("{}.new", case.id));
    let frozen = if case.oracle() == OWN {
        let program = std::env::current_exe().context("cannot find this binary")?;
        freeze_own(&program, case, &dir, &digests, here, &pending)
    } else {
        let folders = Folders { model: &dir, draft: draft.as_deref() };
        freeze(oracles.get(case.oracle())?, case, folders, &digests, here, &pending)
    };
    match frozen {
        Ok(_) => {
            say(format_args!("pending     {}  {}", case.id, root.relative(&pending)));
            Ok(ExitCode::Held)
        }
        Err(FreezeError::Golden(error)) => {
            say(format_args!("refused     {error}"));
            Ok(ExitCode::Golden)
        }
        Err(FreezeError::Oracle(error @ crate::oracle::OracleError::Refused { .. })) => {
            say(format_args!("refused     {}  {error}", case.id));
            Ok(ExitCode::Oracle)
        }
        Err(error @ FreezeError::Own(_)) => {
            say(format_args!("refused     {}  {error}", case.id));
            Ok(ExitCode::Oracle)
        }
        Err(FreezeError::Oracle(error)) => Err(Failure::new(ExitCode::Oracle, error)),
    }
}

fn draft_dir(root: &Root, registry: &Registry, name: &str) -> Result<PathBuf> {
    let model = registry.get(name);
    let model = model.ok_or_else(|| Failure::usage(format!("model `{name}` is not registered")))?;
    model.ready(root).map_err(|error| Failure::new(ExitCode::Usage, error))
}

/// Oracles started so far, by name.
struct Oracles<'a> {
    root: &'a Root,
    running: HashMap<String, Oracle>,
}

impl Oracles<'_> {
    fn get(&mut self, name: &str) -> Result<&mut Oracle> {
        if !self.running.contains_key(name) {
            let oracle = Oracle::start(Launch::of(self.root, name))
                .map_err(|error| Failure::new(ExitCode::Oracle, error))?;
            self.running.insert(name.to_owned(), oracle);
        }
        let missing = || Failure::from(anyhow::anyhow!("oracle {name} was not kept"));
        self.running.get_mut(name).ok_or_else(missing)
    }
}
