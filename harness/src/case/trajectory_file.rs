//! Trajectory cases: `[[prompt]]` and `[[trajectory]]` tables of `goldens/cases/l3/<file>.toml`.

use std::{collections::HashSet, path::Path};

use serde::Deserialize;

use super::{
    Case, CaseError, Composition, DEFAULT_PREFILL_STEP, DecodeFrom, Kind, Prompt, Trajectory,
    file::{invalid, whole_name},
    toml_dir,
    trajectory::{Bounds, Envelope, NamedPrompt},
};
use crate::row::Tier;

/// Fewer prompts give no interval worth the name (design §5, E7).
const MIN_PROMPTS: usize = 4;
/// Fewer positions of a prompt tell too little.
const MIN_POSITIONS: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    /// Prompts of every trajectory in the file.
    prompt: Vec<WirePrompt>,
    trajectory: Vec<WireTrajectory>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePrompt {
    name: String,
    prompt: Prompt,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireTrajectory {
    name: String,
    model: String,
    positions: usize,
    decode_from: DecodeFrom,
    prefill_step: Option<usize>,
    #[serde(default)]
    large: bool,
    degenerate_because: Option<String>,
    envelope: Vec<WireEnvelope>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireEnvelope {
    name: String,
    composition: Composition,
    max_mean: f64,
    max_p99: f64,
    min_agreement: f64,
}

/// The cases of one file.
pub(super) fn load(path: &Path) -> Result<Vec<Case>, CaseError> {
    let WireFile { prompt, trajectory } = toml_dir::read(path)?;
    let prompts = prompts(path, prompt)?;
    trajectory.into_iter().map(|wire| case(path, &prompts, wire)).collect()
}

fn prompts(path: &Path, wire: Vec<WirePrompt>) -> Result<Vec<NamedPrompt>, CaseError> {
    if wire.len() < MIN_PROMPTS {
        let message = format!("{} prompts, wanted at least {MIN_PROMPTS}", wire.len());
        return Err(invalid(path, "prompt", message));
    }
    let mut names = HashSet::new();
    for prompt in &wire {
        toml_dir::check_name(path, &prompt.name)?;
        if prompt.name.contains('/') || !names.insert(&prompt.name) {
            return Err(invalid(path, &prompt.name, "a prompt's name has no `/` and stands once"));
        }
    }
    Ok(wire.into_iter().map(|WirePrompt { name, prompt }| NamedPrompt { name, prompt }).collect())
}

fn case(path: &Path, prompts: &[NamedPrompt], wire: WireTrajectory) -> Result<Case, CaseError> {
    toml_dir::check_name(path, &wire.name)?;
    let refuse = |message: String| Err(invalid(path, &wire.name, message));
    if wire.positions < MIN_POSITIONS {
        return refuse(format!("positions = {}, wanted at least {MIN_POSITIONS}", wire.positions));
    }
    if wire.prefill_step == Some(0) {
        return refuse("prefill-step is 0, wanted at least 1 token".to_owned());
    }
    if wire.why.trim().is_empty() {
        return refuse("`why` is empty: say what this case is there to catch".to_owned());
    }
    let envelopes = envelopes(path, wire.envelope)?;
    Ok(Case {
        id: whole_name(path, Tier::L3, None, &wire.name),
        tier: Tier::L3,
        why: wire.why,
        kind: Kind::Trajectory(Trajectory {
            model: wire.model,
            prompts: prompts.to_vec(),
            positions: wire.positions,
            decode_from: wire.decode_from,
            prefill_step: wire.prefill_step.unwrap_or(DEFAULT_PREFILL_STEP),
            large: wire.large,
            degenerate_because: wire.degenerate_because,
            envelopes,
        }),
    })
}

fn envelopes(path: &Path, wire: Vec<WireEnvelope>) -> Result<Vec<Envelope>, CaseError> {
    let mut names = HashSet::new();
    for envelope in &wire {
        toml_dir::check_name(path, &envelope.name)?;
        let fault = if !names.insert(&envelope.name) {
            Some("an envelope's name stands once".to_owned())
        } else {
            envelope.composition.fault().or_else(|| envelope.fault())
        };
        if let Some(message) = fault {
            return Err(invalid(path, &envelope.name, message));
        }
    }
    Ok(wire.into_iter().map(WireEnvelope::checked).collect())
}

impl WireEnvelope {
    /// What is wrong with the bounds, if something is.
    fn fault(&self) -> Option<String> {
        let above_zero = |x: f64| x.is_finite() && x > 0.0;
        if !above_zero(self.max_mean) || !above_zero(self.max_p99) {
            return Some("max-mean and max-p99 are nats above 0".to_owned());
        }
        if self.max_p99 < self.max_mean {
            return Some("max-p99 is below max-mean".to_owned());
        }
        let share = self.min_agreement > 0.0 && self.min_agreement < 1.0;
        (!share).then(|| "min-agreement is a part between 0 and 1".to_owned())
    }

    fn checked(self) -> Envelope {
        let Self { name, composition, max_mean, max_p99, min_agreement } = self;
        Envelope { name, composition, bounds: Bounds { max_mean, max_p99, min_agreement } }
    }
}
