//! Positions of a model under compositions, kept while the worker lives: kernels share their baselines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use mlx_parity_engine::{LoadOptions, Model, Tokenizer, kernels};
use mlx_parity_kernels::{Candidate, ShapeClass};
use mlx_parity_tensor::HostTensor;

use crate::{
    case::Prompt,
    check::trajectory::forced,
    composition::{self, Spelled},
    envelope::Controls,
    gate::ModelTask,
    stats::{Position, ScoreOptions, score},
};

/// Ids of a prompt, and the logits of its scored positions with the lever off.
pub(super) struct Part {
    ids: Vec<u32>,
    context: usize,
    logits: HostTensor,
}

/// A model with its baseline lanes.
pub(super) struct Lanes {
    model: Model,
    base: Spelled,
    parts: Vec<Part>,
    /// The baseline beside itself.
    pub(super) controls: Controls,
    /// What levers gave, by name: classes share them.
    pulled: RefCell<HashMap<String, Rc<Pulled>>>,
    /// Of which prompt each position is.
    pub(super) clusters: Vec<u32>,
}

/// What a pulled lever gave.
pub(super) struct Pulled {
    /// Scored positions.
    pub(super) positions: Vec<Position>,
    /// Calls that the kernel took, by class.
    pub(super) dispatches: HashMap<&'static str, u64>,
}

type Known = HashMap<String, Rc<Lanes>>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// The lanes of a task.
pub(super) fn of(task: &ModelTask) -> Result<Rc<Lanes>, String> {
    let key = serde_json::to_string(task).map_err(|error| error.to_string())?;
    if let Some(lanes) = KNOWN.with_borrow(|known| known.get(&key).cloned()) {
        return Ok(lanes);
    }
    let lanes = Rc::new(Lanes::new(task).map_err(|error| format!("{}: {error}", task.name))?);
    KNOWN.with_borrow_mut(|known| known.insert(key, Rc::clone(&lanes)));
    Ok(lanes)
}

impl Lanes {
    fn new(task: &ModelTask) -> Result<Self, String> {
        let model = Model::load(&task.folder, &LoadOptions::default()).map_err(text)?;
        let mut lanes = Self {
            model,
            base: task.base.clone(),
            parts: Vec::new(),
            controls: Controls::default(),
            pulled: RefCell::default(),
            clusters: Vec::new(),
        };
        for (cluster, prompt) in task.prompts.iter().enumerate() {
            let ids = ids(&task.folder, &prompt.prompt)?;
            let context = ids.len().checked_sub(task.positions).filter(|context| *context > 0);
            let context = context.ok_or_else(|| {
                format!(
                    "prompt `{}` has {} ids, wanted more than {}",
                    prompt.name,
                    ids.len(),
                    task.positions
                )
            })?;
            let logits = lanes.play(&ids, context, &lanes.base, None)?;
            lanes.parts.push(Part { ids, context, logits });
            lanes.clusters.extend(std::iter::repeat_n(cluster as u32, task.positions));
        }
        lanes.controls = Controls {
            again: lanes.scored(&lanes.base, None, usize::MAX)?,
            split: lanes.scored(&lanes.base, Some(1), usize::MAX)?,
        };
        Ok(lanes)
    }

    /// All positions with the lever of a kernel pulled, once in the life of a worker.
    pub(super) fn pulled(&self, kernel: &'static dyn Candidate) -> Result<Rc<Pulled>, String> {
        let id = kernel.spec().id;
        if let Some(known) = self.pulled.borrow().get(id) {
            return Ok(Rc::clone(known));
        }
        kernels::reset_dispatches();
        let positions = self.under(&format!("{id}=on"), usize::MAX)?;
        let count = |class: &ShapeClass| (class.name, kernels::dispatches_of(id, class.name));
        let dispatches = kernel.classes().iter().map(count).collect();
        let pulled = Rc::new(Pulled { positions, dispatches });
        self.pulled.borrow_mut().insert(id.to_owned(), Rc::clone(&pulled));
        Ok(pulled)
    }

    /// Positions under a lever, of so many prompts.
    pub(super) fn under(&self, lever: &str, prompts: usize) -> Result<Vec<Position>, String> {
        let mut spelled = self.base.clone();
        let comma = if spelled.levers.is_empty() { "" } else { "," };
        spelled.levers = format!("{}{comma}{lever}", spelled.levers);
        self.scored(&spelled, None, prompts)
    }

    fn scored(
        &self,
        spelled: &Spelled,
        split: Option<usize>,
        prompts: usize,
    ) -> Result<Vec<Position>, String> {
        let mut positions = Vec::new();
        for part in self.parts.iter().take(prompts) {
            let logits = self.play(&part.ids, part.context, spelled, split)?;
            let targets = Some(&part.ids[part.context..]);
            let scored =
                score(part.logits.view(), logits.view(), targets, &ScoreOptions::default());
            positions.extend(scored.map_err(|error| error.to_string())?.positions);
        }
        Ok(positions)
    }

    /// Logits of the positions behind `context` ids; `split` is how many ids a call of the prompt takes.
    fn play(
        &self,
        ids: &[u32],
        context: usize,
        spelled: &Spelled,
        split: Option<usize>,
    ) -> Result<HostTensor, String> {
        let mut decoder = composition::decoder(&self.model, spelled).map_err(text)?;
        let (context, targets) = ids.split_at(context);
        let Some(step) = split else { return forced(&mut decoder, context, targets).map_err(text) };
        let last = context.len() - 1;
        for part in context[..last].chunks(step) {
            decoder.verify(part).map_err(text)?;
        }
        forced(&mut decoder, &context[last..], targets).map_err(text)
    }
}

fn ids(folder: &Path, prompt: &Prompt) -> Result<Vec<u32>, String> {
    match prompt {
        Prompt::Ids(ids) => Ok(ids.clone()),
        Prompt::Text(words) => {
            Tokenizer::load(folder).and_then(|of| of.encode(words)).map_err(text)
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "given to map_err")]
fn text(error: mlx_parity_engine::EngineError) -> String {
    error.to_string()
}
