//! Asking an oracle for a golden.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use mlx_parity_tensor::{HostTensor, safetensors::SafetensorsFile};

use super::{
    Answer, DenoiseRequest, DeviationRequest, FreezeAnswer, FreezeRequest, Oracle, OracleError,
    PromptWire, Request, TapRequest,
};
use crate::{
    case::{Case, DecodeFrom, Denoise, Deviation, Kind, Prompt, Replay},
    compare::Strength,
    fingerprint::Fingerprint,
    golden::{self, GOLDEN_SCHEMA, GoldenError, Manifest, OracleVersion, TensorEntry},
    weights::ModelDigests,
};

/// Why freezing failed.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// The oracle.
    #[error(transparent)]
    Oracle(#[from] super::OracleError),
    /// The golden.
    #[error(transparent)]
    Golden(#[from] GoldenError),
    /// The engine, where it is its own oracle.
    #[error("the engine cannot freeze its own answer: {0}")]
    Own(String),
}

/// The folders of the models that a case names.
#[derive(Debug, Clone, Copy)]
pub struct Folders<'a> {
    /// The model.
    pub model: &'a Path,
    /// The one that drafts for it.
    pub draft: Option<&'a Path>,
}

/// What an oracle answered.
struct Answered {
    frozen: FreezeAnswer,
    /// How a fault showed: then the strength of the golden is that its two answers differ, which the
    /// oracle sees to.
    happened: Option<String>,
}

impl From<FreezeAnswer> for Answered {
    fn from(frozen: FreezeAnswer) -> Self {
        Self { frozen, happened: None }
    }
}

/// Freezes the answer to `case` into the folder `dir`, whole or not at all.
pub fn freeze(
    oracle: &mut Oracle,
    case: &Case,
    folders: Folders<'_>,
    digests: &ModelDigests,
    here: &Fingerprint,
    dir: &Path,
) -> Result<Manifest, FreezeError> {
    let scratch = scratch_file(dir)?;
    let answer = match &case.kind {
        Kind::Replay(replay) => {
            replayed(oracle, replay, folders.model, &scratch).map(Answered::from)
        }
        Kind::Denoise(denoise) => {
            denoised(oracle, case, denoise, folders.model, &scratch).map(Answered::from)
        }
        Kind::Deviation(deviation) => deviated(oracle, deviation, folders, &scratch),
        Kind::Trajectory(_)
        | Kind::Op(_)
        | Kind::Meta(_)
        | Kind::Metal(_)
        | Kind::Gate(_)
        | Kind::Vjp(_) => Err(unasked(oracle, "a case that this oracle does not answer")),
    };
    let result = answer.and_then(|answer| {
        let manifest = describe(oracle, case, digests, here, answer, &scratch)?;
        golden::freeze_into(dir, &manifest, &scratch)?;
        Ok(manifest)
    });
    if result.is_err() {
        // Nothing half-written stays; the first error is the one to report.
        let _ = fs::remove_file(&scratch);
    }
    result
}

pub(super) fn scratch_file(dir: &Path) -> Result<PathBuf, GoldenError> {
    let parent = dir.parent().unwrap_or(dir);
    let io = |source| GoldenError::Io { action: "create", path: parent.into(), source };
    fs::create_dir_all(parent).map_err(io)?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    Ok(parent.join(format!(".{name}.answer-{}.safetensors", std::process::id())))
}

fn replayed(
    oracle: &mut Oracle,
    replay: &Replay,
    model: &Path,
    out: &Path,
) -> Result<FreezeAnswer, FreezeError> {
    let request = FreezeRequest {
        model: model.into(),
        prompt: prompt_wire(&replay.prompt),
        steps: replay.decode,
        forced: replay.decode_from == DecodeFrom::Prompt,
        prefill_step: replay.prefill_step,
        out: out.into(),
        adapter: replay.adapter,
        composition: replay.composition.clone(),
        taps: None,
    };
    match oracle.ask(&Request::Freeze(request))? {
        Answer::Frozen(answer) => Ok(answer),
        other => Err(unasked(oracle, &format!("it answered {other:?} to a freeze request"))),
    }
}

fn denoised(
    oracle: &mut Oracle,
    case: &Case,
    denoise: &Denoise,
    model: &Path,
    out: &Path,
) -> Result<FreezeAnswer, FreezeError> {
    let request = denoise_request(denoise, model, out, None);
    let answer = match oracle.ask(&Request::Denoise(request))? {
        Answer::Denoised(answer) => answer,
        other => {
            return Err(unasked(oracle, &format!("it answered {other:?} to a denoise request")));
        }
    };
    if answer.canvas_steps != denoise.canvas_steps {
        let (found, wanted) = (answer.canvas_steps, denoise.canvas_steps.clone());
        return Err(GoldenError::OtherSteps { case: case.id.clone(), found, wanted }.into());
    }
    Ok(FreezeAnswer {
        prompt: denoise.prompt.clone(),
        steps: answer.ids,
        composition: answer.composition,
    })
}

fn deviated(
    oracle: &mut Oracle,
    deviation: &Deviation,
    folders: Folders<'_>,
    out: &Path,
) -> Result<Answered, FreezeError> {
    let request = DeviationRequest {
        fault: deviation.fault,
        model: folders.model.into(),
        draft: folders.draft.map(Into::into),
        prompt: deviation.prompt.clone(),
        steps: deviation.steps,
        prefill_step: deviation.prefill_step,
        out: out.into(),
    };
    let answer = match oracle.ask(&Request::Deviation(request))? {
        Answer::Deviated(answer) => answer,
        other => return Err(unasked(oracle, &format!("it answered {other:?} to a deviation"))),
    };
    let prompt = deviation.prompt.clone();
    let frozen = FreezeAnswer { prompt, steps: Vec::new(), composition: answer.composition };
    Ok(Answered { frozen, happened: Some(answer.happened) })
}

fn unasked(oracle: &Oracle, message: &str) -> FreezeError {
    let name = oracle.hello().oracle.clone();
    OracleError::Protocol { name, message: message.to_owned() }.into()
}

/// The question that a denoising case asks an oracle.
pub fn denoise_request(
    denoise: &Denoise,
    model: &Path,
    out: &Path,
    taps: Option<TapRequest>,
) -> DenoiseRequest {
    let settings = &denoise.settings;
    DenoiseRequest {
        model: model.into(),
        prompt: denoise.prompt.clone(),
        max_tokens: settings.max_tokens,
        steps: settings.steps,
        seed: settings.seed,
        temperature: settings.temperature,
        sampler: settings.sampler,
        threshold: settings.threshold,
        min_canvas: settings.min_canvas,
        max_canvas: settings.max_canvas,
        prefill_step: settings.prefill_step,
        stop: settings.stop.clone(),
        out: out.into(),
        taps,
    }
}

/// The prompt of a case as an oracle reads it.
pub fn prompt_wire(prompt: &Prompt) -> PromptWire {
    match prompt {
        Prompt::Ids(ids) => PromptWire::Ids(ids.clone()),
        Prompt::Text(text) => PromptWire::Text(text.clone()),
    }
}

fn describe(
    oracle: &Oracle,
    case: &Case,
    digests: &ModelDigests,
    here: &Fingerprint,
    answer: Answered,
    tensors: &Path,
) -> Result<Manifest, FreezeError> {
    let Answered { frozen: answer, happened } = answer;
    if let Some(message) = answer.composition.unasked(case.composition()) {
        return Err(GoldenError::OtherComposition { case: case.id.clone(), message }.into());
    }
    let hello = oracle.hello();
    let file = SafetensorsFile::open(tensors).map_err(GoldenError::from)?;
    let mut entries = BTreeMap::new();
    let mut strength = Strength::new();
    for name in file.names() {
        let tensor = file.tensor(name).map_err(GoldenError::from)?;
        entries.insert(name.to_owned(), entry(&tensor));
        if name.ends_with(".logits") {
            strength.add_logits(name, &tensor.view());
        }
    }
    let strength = match happened {
        Some(happened) => serde_json::json!({ "deviates": happened }),
        None => judge(case, &strength)?,
    };
    let fingerprint = Fingerprint {
        mlx: hello.packages.get("mlx").cloned().unwrap_or_default(),
        backend: hello.backend.clone(),
        ..here.clone()
    };
    Ok(Manifest {
        schema: GOLDEN_SCHEMA,
        case: case.id.clone(),
        case_digest: case.digest(),
        oracle: OracleVersion { name: hello.oracle.clone(), packages: hello.packages.clone() },
        fingerprint,
        weights: digests.weights.clone(),
        config: digests.config.clone(),
        composition: answer.composition,
        prompt: answer.prompt,
        steps: answer.steps,
        strength,
        tensors: entries,
        command: format!("mlx-parity freeze {}", case.id),
    })
}

pub(super) fn entry(tensor: &HostTensor) -> TensorEntry {
    TensorEntry { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), digest: tensor.digest() }
}

/// Refuses an answer that could not tell a right engine from a wrong one (design §3.3).
fn judge(case: &Case, strength: &Strength) -> Result<serde_json::Value, GoldenError> {
    match (strength.refusal(), case.degenerate_because()) {
        (Some(reason), None) => {
            Err(GoldenError::Degenerate { case: case.id.clone(), reason: reason.to_string() })
        }
        _ => Ok(serde_json::to_value(strength).unwrap_or_default()),
    }
}
