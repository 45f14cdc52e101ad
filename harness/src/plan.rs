//! From cases to jobs: which golden answers each case on this machine, or why none does.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use crate::{
    case::{Case, Kind, OWN},
    check,
    fingerprint::Fingerprint,
    golden::{Golden, GoldenError, Store},
    metal::{self, Files, MetalCase},
    model::{ModelEntry, NotReady, Registry},
    ops::{Bound, Call, Tolerances},
    oracle::{Folders, FreezeError, Launch, Oracle, OracleError, freeze, freeze_own},
    root::Root,
    row::{NotRunKind, Outcome, Row, Tier},
    weights::ModelDigests,
    worker::{Job, ReplayFiles},
};

/// What the planner is asked for.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Freeze every case anew on this machine and compare with that answer.
    pub live: bool,
    /// A deliberate fault for every job.
    pub fault: Option<String>,
    /// The binary that has the `worker` command; this one where it is not given.
    pub program: Option<PathBuf>,
}

/// A case on its way to a worker, or the rows that say why it cannot be run.
#[derive(Debug)]
pub enum Planned {
    /// It can be run.
    Job(Box<Job>),
    /// It cannot; every check has a row.
    NotRun(Vec<Row>),
}

/// Finds, or freezes, a golden for each case.
pub struct Planner<'a> {
    root: &'a Root,
    registry: &'a Registry,
    here: &'a Fingerprint,
    options: PlanOptions,
    frozen: Store,
    live: Store,
    digests: HashMap<PathBuf, Result<ModelDigests, String>>,
    oracles: HashMap<String, Result<Oracle, String>>,
    tolerances: Option<Result<Tolerances, String>>,
}

impl<'a> Planner<'a> {
    /// A planner for this machine.
    pub fn new(
        root: &'a Root,
        registry: &'a Registry,
        here: &'a Fingerprint,
        options: PlanOptions,
    ) -> Self {
        Self {
            root,
            registry,
            here,
            options,
            frozen: Store::new(&root.frozen(), here),
            live: Store::new(&root.live(), here),
            digests: HashMap::new(),
            oracles: HashMap::new(),
            tolerances: None,
        }
    }

    /// Plans one case.
    pub fn plan(&mut self, case: Case) -> Planned {
        if let Kind::Metal(metal) = &case.kind {
            let metal = metal.clone();
            return self.plan_metal(case, &metal);
        }
        if let Kind::Vjp(vjp) = &case.kind {
            let (subject, dtype) = (vjp.label.clone(), vjp.dtype.name().to_owned());
            return Planned::Job(Box::new(self.job(case, subject, dtype, None)));
        }
        let Some(name) = case.model().map(str::to_owned) else { return self.plan_op(case) };
        let Some(model) = self.registry.get(&name).cloned() else {
            let message = format!(
                "model `{name}` is neither in goldens/models.toml nor in goldens/synthetic"
            );
            let job = self.job(case, name, String::new(), None);
            return left_out(&job, NotRunKind::GoldenUnfit, &message);
        };
        if let Some(reason) = case.not_frozen().map(str::to_owned) {
            let message = format!("no golden can be had: {reason}");
            let job = self.job(case, model.subject, model.dtype, None);
            return left_out(&job, NotRunKind::Unsupported, &message);
        }
        let model_dir = match model.ready(self.root) {
            Ok(dir) => dir,
            Err(error) => {
                let kind = match error {
                    NotReady::NotProvisioned(_) => NotRunKind::ModelNotProvisioned,
                    NotReady::Synthetic(_) => NotRunKind::GoldenUnfit,
                };
                let job = self.job(case, model.subject, model.dtype, None);
                return left_out(&job, kind, &error.to_string());
            }
        };
        if !case.has_golden() {
            let mut job = self.job(case, model.subject, model.dtype, None);
            job.model = Some(model_dir);
            return Planned::Job(Box::new(job));
        }
        let draft = match self.draft(&case) {
            Ok(draft) => draft,
            Err((kind, message)) => {
                return left_out(&self.job(case, model.subject, model.dtype, None), kind, &message);
            }
        };
        let planned = self.golden(&case, &model, draft.as_deref());
        let mut job = self.job(case, model.subject, model.dtype, None);
        match planned {
            Ok((golden, notes)) => {
                job.files = Some(ReplayFiles { model: model_dir, golden, draft });
                job.notes = notes;
                Planned::Job(Box::new(job))
            }
            Err((kind, message)) => left_out(&job, kind, &message),
        }
    }

    /// The folder of the model that drafts, where the case names one.
    fn draft(&self, case: &Case) -> Result<Option<PathBuf>, (NotRunKind, String)> {
        let Some(name) = case.draft() else { return Ok(None) };
        let unfit = |message: String| (NotRunKind::GoldenUnfit, message);
        let model = self.registry.get(name);
        let model = model.ok_or_else(|| unfit(format!("model `{name}` is not registered")))?;
        let missing = |error: NotReady| (NotRunKind::ModelNotProvisioned, error.to_string());
        model.ready(self.root).map(Some).map_err(missing)
    }

    fn plan_op(&mut self, case: Case) -> Planned {
        let (subject, dtype, calls) = match &case.kind {
            Kind::Op(op) => (op.op.clone(), op.dtype.name().to_owned(), op.calls()),
            _ => Default::default(),
        };
        let bounds = self.bounds(&calls);
        let mut job = self.job(case, subject, dtype, None);
        match bounds {
            Ok(bounds) => {
                job.bounds = bounds;
                Planned::Job(Box::new(job))
            }
            Err(message) => left_out(&job, NotRunKind::GoldenUnfit, &message),
        }
    }

    fn plan_metal(&self, case: Case, metal: &MetalCase) -> Planned {
        let bounds = metal::bounds(metal, Some(&self.root.tolerances_file()));
        let (subject, dtype) = (metal.kernel.clone(), metal.dtype.name().to_owned());
        let mut job = self.job(case, subject, dtype, None);
        job.metal = Some(Files {
            folder: self.root.cases().join(Tier::Metal.name()),
            cache: self.root.emulated(),
            include: self.root.metal_headers(),
        });
        match bounds {
            Ok(bounds) => {
                job.bounds = bounds;
                Planned::Job(Box::new(job))
            }
            Err(message) => left_out(&job, NotRunKind::GoldenUnfit, &message),
        }
    }

    fn bounds(&mut self, calls: &[Call]) -> Result<Vec<Bound>, String> {
        let (file, backend) = (self.root.tolerances_file(), &self.here.backend);
        let load = || Tolerances::load(&file, backend).map_err(|error| error.to_string());
        let table = self.tolerances.get_or_insert_with(load).as_ref().map_err(Clone::clone)?;
        let bound = |call| table.bound(call).map_err(|error| error.to_string());
        calls.iter().map(bound).collect()
    }

    fn golden(
        &mut self,
        case: &Case,
        model: &ModelEntry,
        draft: Option<&Path>,
    ) -> Result<(PathBuf, Vec<String>), (NotRunKind, String)> {
        let digests = self.digests(model).map_err(|message| (NotRunKind::GoldenUnfit, message))?;
        if !self.options.live {
            if self.frozen.has(case) {
                let dir = self.frozen.path_of(&case.id);
                fits(&dir, case, &digests, self.here)?;
                return Ok((dir, Vec::new()));
            }
            let dir = self.live.path_of(&case.id);
            // A live golden is a cache: one that no longer fits is frozen again.
            if self.live.has(case) && fits(&dir, case, &digests, self.here).is_ok() {
                return Ok((dir, vec![live_note(self.here)]));
            }
        }
        let dir = self.freeze_live(case, model, draft, &digests)?;
        let note = if self.options.live && self.frozen.has(case) {
            agreement(&self.frozen.path_of(&case.id), &dir)?
        } else {
            live_note(self.here)
        };
        Ok((dir, vec![note]))
    }

    fn freeze_live(
        &mut self,
        case: &Case,
        model: &ModelEntry,
        draft: Option<&Path>,
        digests: &ModelDigests,
    ) -> Result<PathBuf, (NotRunKind, String)> {
        let dir = self.live.path_of(&case.id);
        if case.oracle() == OWN {
            return self.freeze_own(case, model, digests, dir);
        }
        let (model_dir, here) = (model.dir(self.root), self.here.clone());
        let oracle = self.oracle(case.oracle()).map_err(|m| (NotRunKind::OracleUnavailable, m))?;
        let folders = Folders { model: &model_dir, draft };
        match freeze(oracle, case, folders, digests, &here, &dir) {
            Ok(_) => Ok(dir),
            Err(FreezeError::Golden(error)) => Err((NotRunKind::GoldenUnfit, error.to_string())),
            Err(FreezeError::Own(message)) => Err((NotRunKind::OracleUnavailable, message)),
            Err(FreezeError::Oracle(error)) => {
                if !matches!(error, OracleError::Refused { .. }) {
                    // A dead oracle answers nothing more; the next case starts a new one.
                    self.oracles.remove(case.oracle());
                }
                Err((NotRunKind::OracleUnavailable, error.to_string()))
            }
        }
    }

    fn freeze_own(
        &self,
        case: &Case,
        model: &ModelEntry,
        digests: &ModelDigests,
        dir: PathBuf,
    ) -> Result<PathBuf, (NotRunKind, String)> {
        let unavailable = |message| (NotRunKind::OracleUnavailable, message);
        let program = self.options.program.clone().map_or_else(std::env::current_exe, Ok);
        let program = program.map_err(|error| unavailable(error.to_string()))?;
        freeze_own(&program, case, &model.dir(self.root), digests, self.here, &dir)
            .map(|_| dir)
            .map_err(|error| match error {
                FreezeError::Golden(error) => (NotRunKind::GoldenUnfit, error.to_string()),
                error => unavailable(error.to_string()),
            })
    }

    fn oracle(&mut self, name: &str) -> Result<&mut Oracle, String> {
        let root = self.root;
        self.oracles
            .entry(name.to_owned())
            .or_insert_with(|| {
                Oracle::start(Launch::of(root, name)).map_err(|error| error.to_string())
            })
            .as_mut()
            .map_err(|message| message.clone())
    }

    fn digests(&mut self, model: &ModelEntry) -> Result<ModelDigests, String> {
        let dir = model.dir(self.root);
        self.digests
            .entry(dir.clone())
            .or_insert_with(|| ModelDigests::of(&dir).map_err(|error| error.to_string()))
            .clone()
    }

    fn job(&self, case: Case, subject: String, dtype: String, files: Option<ReplayFiles>) -> Job {
        let fault = self.options.fault.clone();
        Job {
            case,
            subject,
            dtype,
            files,
            model: None,
            metal: None,
            bounds: Vec::new(),
            notes: Vec::new(),
            fault,
        }
    }
}

fn left_out(job: &Job, kind: NotRunKind, message: &str) -> Planned {
    let outcome = Outcome::NotRun { kind, message: message.to_owned() };
    let checks = job.case.checks().into_iter();
    Planned::NotRun(checks.map(|id| check::row(job, id, outcome.clone())).collect())
}

fn live_note(here: &Fingerprint) -> String {
    format!("no committed golden for {}; compared with one frozen live on it", here.class())
}

fn fits(
    dir: &Path,
    case: &Case,
    digests: &ModelDigests,
    here: &Fingerprint,
) -> Result<(), (NotRunKind, String)> {
    Golden::open(dir)
        .and_then(|golden| golden.fit(case, &digests.weights, &digests.config, here))
        .map_err(|error| match error {
            GoldenError::Missing(_) => (NotRunKind::GoldenMissing, error.to_string()),
            _ => (NotRunKind::GoldenUnfit, error.to_string()),
        })
}

/// Says that a live golden agrees with the committed one bit for bit, or fails.
fn agreement(frozen: &Path, live: &Path) -> Result<String, (NotRunKind, String)> {
    let unfit = |error: GoldenError| (NotRunKind::GoldenUnfit, error.to_string());
    let (frozen, live) = (Golden::open(frozen).map_err(unfit)?, Golden::open(live).map_err(unfit)?);
    let (a, b) = (&frozen.manifest, &live.manifest);
    let differs = |what: String| {
        let message = format!("the live golden differs from the committed one in {what}");
        (NotRunKind::GoldenUnfit, message)
    };
    if a.prompt != b.prompt || a.steps != b.steps {
        return Err(differs("its ids".into()));
    }
    if a.composition != b.composition {
        return Err(differs("its composition".into()));
    }
    for (name, entry) in &a.tensors {
        // The committed bytes themselves are checked against the manifest, not only its digests.
        frozen.tensor(name).map_err(unfit)?;
        if b.tensors.get(name) != Some(entry) {
            return Err(differs(format!("tensor `{name}`")));
        }
    }
    Ok("frozen live; agrees with the committed golden bit for bit".to_owned())
}
