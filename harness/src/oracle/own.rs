//! The engine as its own oracle: its L1 path's trajectories, played in a worker.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use mlx_parity_tensor::{
    HostTensor,
    safetensors::{SafetensorsError, SafetensorsFile},
};

use super::{
    FreezeError,
    freeze::{entry, scratch_file},
};
use crate::{
    case::{Case, OWN, Trajectory},
    compare::Strength,
    envelope::TrajectoryStrength,
    fingerprint::Fingerprint,
    golden::{self, Composition, GOLDEN_SCHEMA, GoldenError, Manifest, OracleVersion},
    stats::{ScoreOptions, score},
    weights::ModelDigests,
    worker::{Command, Job, Worker},
};

/// Time a worker has to play the trajectory of a case.
const LIMIT: Duration = Duration::from_hours(1);

/// Key of a trajectory's metadata that has its composition.
pub const COMPOSITION: &str = "composition";

/// Plays the trajectory of `case` with the model in `model` and freezes it into the folder `dir`, whole or not at all.
///
/// # Errors
/// [`FreezeError::Own`] where the engine cannot play it, [`FreezeError::Golden`] where the trajectory is degenerate or
/// cannot be written.
pub fn freeze_own(
    program: &Path,
    case: &Case,
    model: &Path,
    digests: &ModelDigests,
    here: &Fingerprint,
    dir: &Path,
) -> Result<Manifest, FreezeError> {
    let scratch = scratch_file(dir)?;
    let result = play(program, case, model, &scratch).and_then(|()| {
        let manifest = describe(case, digests, here, &scratch)?;
        golden::freeze_into(dir, &manifest, &scratch)?;
        Ok(manifest)
    });
    if result.is_err() {
        // Nothing half-written stays; the first error is the one to report.
        let _ = fs::remove_file(&scratch);
    }
    result
}

fn play(program: &Path, case: &Case, model: &Path, out: &Path) -> Result<(), FreezeError> {
    let job = Job {
        case: case.clone(),
        subject: String::new(),
        dtype: String::new(),
        files: None,
        model: Some(model.into()),
        metal: None,
        bounds: Vec::new(),
        notes: Vec::new(),
        fault: None,
    };
    let command = Command::Freeze { job: Box::new(job), out: out.into() };
    let mut worker = Worker::start(program).map_err(|error| FreezeError::Own(error.to_string()))?;
    worker.ask(&command, LIMIT).map_err(|error| FreezeError::Own(error.to_string()))
}

fn describe(
    case: &Case,
    digests: &ModelDigests,
    here: &Fingerprint,
    tensors: &Path,
) -> Result<Manifest, FreezeError> {
    let trajectory =
        case.trajectory().ok_or_else(|| FreezeError::Own("this case has none".to_owned()))?;
    let file = SafetensorsFile::open(tensors).map_err(GoldenError::from)?;
    let mut entries = BTreeMap::new();
    for name in file.names() {
        entries.insert(name.to_owned(), entry(&file.tensor(name).map_err(GoldenError::from)?));
    }
    Ok(Manifest {
        schema: GOLDEN_SCHEMA,
        case: case.id.clone(),
        case_digest: case.digest(),
        oracle: OracleVersion {
            name: OWN.to_owned(),
            packages: BTreeMap::from([
                (OWN.to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
                ("mlx".to_owned(), here.mlx.clone()),
            ]),
        },
        fingerprint: here.clone(),
        weights: digests.weights.clone(),
        config: digests.config.clone(),
        composition: composition(&file)?,
        prompt: Vec::new(),
        steps: Vec::new(),
        strength: strength(case, trajectory, &file)?,
        tensors: entries,
        command: format!("mlx-parity freeze {}", case.id),
    })
}

fn composition(file: &SafetensorsFile) -> Result<Composition, FreezeError> {
    let text = file.metadata().get(COMPOSITION).map_or("", String::as_str);
    serde_json::from_str(text).map_err(|error| FreezeError::Own(format!("composition: {error}")))
}

/// Refuses a trajectory that could not tell a right engine from a wrong one (design §3.3), prompt by prompt.
fn strength(
    case: &Case,
    trajectory: &Trajectory,
    file: &SafetensorsFile,
) -> Result<serde_json::Value, FreezeError> {
    let mut all = serde_json::Map::new();
    for prompt in &trajectory.prompts {
        let (general, of) = strength_of(&prompt.name, trajectory, file)?;
        let weak = general.refusals().iter().map(ToString::to_string).collect::<Vec<_>>();
        let weak = [weak, of.weaknesses().iter().map(ToString::to_string).collect()].concat();
        if let (Some(reason), None) = (weak.first(), case.degenerate_because()) {
            let reason = format!("prompt `{}`: {reason}", prompt.name);
            return Err(GoldenError::Degenerate { case: case.id.clone(), reason }.into());
        }
        all.insert(prompt.name.clone(), serde_json::to_value(of).unwrap_or_default());
    }
    Ok(all.into())
}

fn strength_of(
    name: &str,
    trajectory: &Trajectory,
    file: &SafetensorsFile,
) -> Result<(Strength, TrajectoryStrength), FreezeError> {
    let read =
        |name: String| file.tensor(&name).map_err(|e: SafetensorsError| GoldenError::from(e));
    let (ids, logits) = (read(format!("{name}.ids"))?, read(format!("{name}.logits"))?);
    let mut general = Strength::new();
    general.add_logits(name, &logits.view());
    let targets = targets(&ids, trajectory.positions);
    let scored = score(logits.view(), logits.view(), Some(&targets), &ScoreOptions::default())
        .map_err(|error| FreezeError::Own(error.to_string()))?;
    let vocabulary = logits.shape().last().copied().unwrap_or(0);
    Ok((general, TrajectoryStrength::of(&targets, &scored.positions, vocabulary)))
}

/// The ids that the scored positions predict.
fn targets(ids: &HostTensor, positions: usize) -> Vec<u32> {
    let all = ids.to_f64();
    all[all.len().saturating_sub(positions)..].iter().map(|id| *id as u32).collect()
}
