//! What the gate sets out to do: cells, and the cases of each.

use std::path::Path;

use mlx_parity_kernels::{
    CANDIDATES, Candidate,
    ledger::{Cell, Place},
};
use mlx_parity_tensor::Dtype;
use serde::Deserialize;

use super::case::{GateCase, ModelTask, Stage};
use crate::{
    case::{self, Case, CaseError, Kind, NamedPrompt, read_toml},
    composition::Spelled,
    fingerprint::Fingerprint,
    metal::Files,
    model::Registry,
    root::Root,
    row::Tier,
    worker::Job,
};

/// `goldens/gate.toml`: the models that E7 asks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Models {
    /// Cases of tier L3 whose prompts are taken: those whose id begins so.
    prompts: String,
    /// Scored positions of each prompt.
    positions: usize,
    #[serde(default)]
    model: Vec<WireModels>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireModels {
    /// Kernels that these models run.
    kernels: Vec<String>,
    dtype: Dtype,
    /// Names from `goldens/models.toml`.
    models: Vec<String>,
    /// The composition with the lever off.
    composition: Spelled,
    /// Classes that these models have calls of; absent, all.
    classes: Option<Vec<String>>,
}

/// What to gate.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Ids of kernels; none asks for all.
    pub kernels: Vec<String>,
    /// Less of everything.
    pub quick: bool,
    /// Mutants on a model and in emulation too.
    pub mutants: bool,
}

/// A cell and its cases.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The cell on this machine's backend.
    pub cell: Cell,
    /// Its cases.
    pub cases: Vec<Case>,
    /// Models that are wanted and not here, with the reason.
    pub absent: Vec<String>,
}

/// The whole plan.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Cells that were asked for.
    pub cells: Vec<Planned>,
    /// Cells of backwards of those, which only give E8.
    pub backwards: Vec<Planned>,
}

/// A plan that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A file.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// A kernel that does not exist.
    #[error("there is no kernel `{found}`; wanted one of {known}")]
    Kernel {
        /// As asked.
        found: String,
        /// Those there are.
        known: String,
    },
    /// A table that names what does not exist.
    #[error("{file}: {message}")]
    Table {
        /// The file.
        file: String,
        /// What is wrong.
        message: String,
    },
}

/// The place of decisions for a fingerprint.
pub fn place(here: &Fingerprint) -> Place {
    let chip = match here.backend.as_str() {
        "cpu" => here.arch.clone(),
        _ => here.chip_slug(),
    };
    Place { backend: here.backend.clone(), chip, mlx: here.mlx.clone() }
}

/// Candidates by their ids, all where none is named.
///
/// # Errors
/// [`PlanError::Kernel`].
pub fn candidates(ids: &[String]) -> Result<Vec<&'static dyn Candidate>, PlanError> {
    if ids.is_empty() {
        return Ok(CANDIDATES.to_vec());
    }
    let known = || CANDIDATES.iter().map(|one| one.spec().id).collect::<Vec<_>>().join(", ");
    let find = |id: &String| {
        mlx_parity_kernels::candidate(id)
            .ok_or_else(|| PlanError::Kernel { found: id.clone(), known: known() })
    };
    ids.iter().map(find).collect()
}

/// Plans what was asked.
///
/// # Errors
/// [`PlanError`].
pub fn plan(root: &Root, here: &Fingerprint, asked: &Asked) -> Result<Plan, PlanError> {
    let planner = Planner::new(root, here, asked)?;
    let chosen = candidates(&asked.kernels)?;
    let mut plan = Plan::default();
    for candidate in &chosen {
        plan.cells.extend(planner.cells(*candidate, false));
    }
    let wanted = chosen.iter().filter_map(|candidate| candidate.spec().backward);
    for id in wanted.filter(|id| !chosen.iter().any(|one| one.spec().id == *id)) {
        if let Some(backward) = mlx_parity_kernels::candidate(id) {
            plan.backwards.extend(planner.cells(backward, true));
        }
    }
    Ok(plan)
}

struct Planner<'a> {
    root: &'a Root,
    place: Place,
    asked: &'a Asked,
    models: Models,
    prompts: Vec<NamedPrompt>,
    registry: Registry,
}

impl<'a> Planner<'a> {
    fn new(root: &'a Root, here: &Fingerprint, asked: &'a Asked) -> Result<Self, PlanError> {
        let models: Models = read_toml(&root.gate_file())?;
        let prompts = prompts(root, &models)?;
        let registry = Registry::load(root)?;
        check(&root.gate_file(), &models, &registry)?;
        Ok(Self { root, place: place(here), asked, models, prompts, registry })
    }

    fn cells(&self, candidate: &'static dyn Candidate, trials_only: bool) -> Vec<Planned> {
        let spec = candidate.spec();
        let digest = spec.digest();
        let mut cells = Vec::new();
        for &dtype in spec.dtypes {
            for class in candidate.classes() {
                let cell = Cell {
                    kernel: spec.id.to_owned(),
                    place: self.place.clone(),
                    dtype,
                    class: class.name.to_owned(),
                    digest: digest.clone(),
                };
                cells.push(self.cell(candidate, cell, trials_only));
            }
        }
        cells
    }

    fn cell(&self, candidate: &dyn Candidate, cell: Cell, trials_only: bool) -> Planned {
        let mut stages = vec![Stage::Trials];
        let mut absent = Vec::new();
        if !trials_only {
            let mut tasks = Vec::new();
            for found in self.tasks(&cell) {
                match found {
                    Ok(task) => tasks.push(task),
                    Err(why) => absent.push(why),
                }
            }
            let screen = tasks.first().filter(|_| self.asked.mutants).cloned().map(Box::new);
            stages.push(Stage::Power { screen });
            stages.extend(tasks.into_iter().map(|task| Stage::Model(Box::new(task))));
            if candidate.spec().metal.is_some() && !self.asked.quick {
                stages.push(Stage::Emulated { files: self.files(), mutants: self.asked.mutants });
            }
            stages.push(Stage::Speed);
        }
        let case = |stage| self.case(&cell, stage);
        Planned { cases: stages.into_iter().map(case).collect(), cell, absent }
    }

    fn case(&self, cell: &Cell, stage: Stage) -> Case {
        let of = GateCase {
            kernel: cell.kernel.clone(),
            dtype: cell.dtype,
            class: cell.class.clone(),
            digest: cell.digest.clone(),
            quick: self.asked.quick,
            stage,
        };
        gate_case(of)
    }

    /// The models of a cell, or why one is not here.
    fn tasks(&self, cell: &Cell) -> Vec<Result<ModelTask, String>> {
        let fits = |of: &&WireModels| {
            of.kernels.contains(&cell.kernel)
                && of.dtype == cell.dtype
                && of.classes.as_ref().is_none_or(|classes| classes.contains(&cell.class))
        };
        let mut tasks = Vec::new();
        for of in self.models.model.iter().filter(fits) {
            for name in &of.models {
                tasks.push(self.task(name, &of.composition));
            }
        }
        tasks
    }

    fn task(&self, name: &str, base: &Spelled) -> Result<ModelTask, String> {
        let entry = self.registry.get(name).ok_or_else(|| format!("no model `{name}`"))?;
        let folder = entry.ready(self.root).map_err(|error| format!("{name}: {error}"))?;
        let most = if self.asked.quick { 1 } else { self.prompts.len() };
        Ok(ModelTask {
            name: name.to_owned(),
            folder,
            base: base.clone(),
            prompts: self.prompts.iter().take(most).cloned().collect(),
            positions: self.models.positions,
        })
    }

    fn files(&self) -> Files {
        Files {
            folder: self.root.path().to_owned(),
            cache: self.root.emulated(),
            include: Vec::new(),
        }
    }
}

/// A case of the gate.
pub fn gate_case(of: GateCase) -> Case {
    let id = format!("gate/{}", of.name());
    let why = format!("evidence about {} for the gate", of.kernel);
    Case { id, tier: Tier::Gate, why, kind: Kind::Gate(of) }
}

/// The job of a case of the gate, which needs no files beside what it says.
pub fn job(case: &Case) -> Option<Job> {
    let Kind::Gate(of) = &case.kind else { return None };
    Some(Job {
        subject: of.kernel.clone(),
        dtype: of.dtype.name().to_owned(),
        case: case.clone(),
        files: None,
        model: None,
        metal: None,
        bounds: Vec::new(),
        notes: Vec::new(),
        fault: None,
    })
}

fn prompts(root: &Root, models: &Models) -> Result<Vec<NamedPrompt>, PlanError> {
    let cases = case::load_all(&root.cases())?;
    let of = cases.iter().find(|case| case.id.starts_with(&models.prompts));
    let prompts = of.and_then(Case::trajectory).map(|trajectory| trajectory.prompts.clone());
    prompts.ok_or_else(|| PlanError::Table {
        file: root.relative(&root.gate_file()),
        message: format!("prompts = `{}`: no trajectory begins so", models.prompts),
    })
}

/// Every name in the table must exist.
fn check(file: &Path, models: &Models, registry: &Registry) -> Result<(), PlanError> {
    let wrong =
        |message: String| Err(PlanError::Table { file: file.display().to_string(), message });
    for of in &models.model {
        if let Some(name) = of.models.iter().find(|name| registry.get(name).is_none()) {
            return wrong(format!("there is no model `{name}` in goldens/models.toml"));
        }
        for id in &of.kernels {
            let Some(candidate) = mlx_parity_kernels::candidate(id) else {
                return wrong(format!("there is no kernel `{id}`"));
            };
            let known =
                |name: &&String| candidate.classes().iter().any(|class| class.name == **name);
            let unknown = of.classes.iter().flatten().find(|name| !known(name));
            if let Some(name) = unknown {
                return wrong(format!("{id} has no class `{name}`"));
            }
        }
    }
    Ok(())
}
