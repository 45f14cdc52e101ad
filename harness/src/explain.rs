//! Where a wrong answer starts: the engine's intermediates beside the oracle's, in model order.

use std::path::Path;

use mlx_parity_tensor::safetensors::SafetensorsFile;

use crate::{
    case::{DecodeFrom, Denoise, Kind, Replay},
    compare::bit_exact,
    oracle::{
        Answer, FreezeRequest, Launch, Oracle, OracleError, Request, TapRequest, denoise_request,
        prompt_wire,
    },
    root::Root,
    row::Row,
    worker::{Command, Job, Worker, WorkerError},
};

/// Why the intermediates could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The oracle's side.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The engine's side could not be started.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The engine's side failed.
    #[error("the engine gave no intermediates: {0}")]
    Engine(String),
    /// Not a replay of a model.
    #[error("only a replay of a golden has intermediates to compare with")]
    NoIntermediates,
    /// A file between the two.
    #[error(transparent)]
    File(#[from] mlx_parity_tensor::safetensors::SafetensorsError),
    /// A scratch folder.
    #[error("cannot make a scratch folder: {0}")]
    Scratch(#[from] std::io::Error),
}

/// Names the first intermediate of the failing step that differs from the oracle's.
pub fn explain(root: &Root, program: &Path, job: &Job, row: &Row) -> Result<String, ExplainError> {
    let (step, spoken) = match &job.case.kind {
        Kind::Denoise(denoise) => {
            let step = denoise.step_of(&row.id).ok_or(ExplainError::NoIntermediates)?;
            let steps: usize = denoise.canvas_steps.iter().sum();
            (step, format!("step {step} of {steps} over all canvases"))
        }
        _ => (step_of(&row.id), step_name(step_of(&row.id))),
    };
    let mut oracle = Oracle::start(Launch::of(root, job.case.oracle()))?;
    let found = intermediates(&mut oracle, &mut Worker::start(program)?, job, step)?;
    Ok(format!("intermediates of {spoken}: {}", found.text()))
}

/// The engine's intermediates of one step beside the oracle's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Those that are bit-equal, in model order, up to the first that is not.
    pub equal: Vec<String>,
    /// The first that differs: its name, the call it is of, and how it differs.
    pub first: Option<(String, String, String)>,
    /// Names that only the engine gives: nothing can be said of them.
    pub engine_only: Vec<String>,
}

impl Comparison {
    fn text(&self) -> String {
        let Self { equal, first, .. } = self;
        let Some((name, call, detail)) = first else {
            let count = equal.len();
            return format!(
                "all {count} are bit-exact; the difference comes and goes with watching"
            );
        };
        let before = equal.last().map_or("nothing before it was compared".to_owned(), |last| {
            format!("{} intermediates before it are bit-exact, the last {last}", equal.len())
        });
        format!("first difference at {name} (call {call}); {before}\n  {detail}")
    }
}

/// Compares the intermediates of a step of a model's case, 0 being the prefill.
pub fn intermediates(
    oracle: &mut Oracle,
    worker: &mut Worker,
    job: &Job,
    step: usize,
) -> Result<Comparison, ExplainError> {
    let scratch = tempfile::tempdir()?;
    let theirs = scratch.path().join("oracle.safetensors");
    let ours = scratch.path().join("engine.safetensors");
    ask_oracle(oracle, job, step, &theirs)?;
    let command = Command::Tap { job: Box::new(job.clone()), step, out: ours.clone() };
    worker.tap(&command).map_err(ExplainError::Engine)?;
    compare(&SafetensorsFile::open(&ours)?, &SafetensorsFile::open(&theirs)?)
}

/// The decode step of a check, 0 for the prefill.
fn step_of(id: &str) -> usize {
    id.rsplit_once("step-").and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

fn step_name(step: usize) -> String {
    if step == 0 { "the prefill".to_owned() } else { format!("decode step {step}") }
}

fn ask_oracle(oracle: &mut Oracle, job: &Job, step: usize, out: &Path) -> Result<(), ExplainError> {
    let Some(files) = &job.files else { return Err(ExplainError::NoIntermediates) };
    let request = match &job.case.kind {
        Kind::Replay(replay) => replay_request(replay, &files.model, step, out),
        Kind::Denoise(denoise) => denoised_request(denoise, &files.model, step, out),
        Kind::Deviation(_)
        | Kind::Trajectory(_)
        | Kind::Op(_)
        | Kind::Meta(_)
        | Kind::Metal(_)
        | Kind::Gate(_)
        | Kind::Vjp(_) => {
            return Err(ExplainError::NoIntermediates);
        }
    };
    match oracle.ask(&request)? {
        Answer::Frozen(_) | Answer::Denoised(_) => Ok(()),
        other => Err(OracleError::Protocol {
            name: job.case.oracle().to_owned(),
            message: format!("it answered {other:?} to a freeze request"),
        }
        .into()),
    }
}

fn replay_request(replay: &Replay, model: &Path, step: usize, out: &Path) -> Request {
    Request::Freeze(FreezeRequest {
        model: model.into(),
        prompt: prompt_wire(&replay.prompt),
        steps: replay.decode,
        forced: replay.decode_from == DecodeFrom::Prompt,
        prefill_step: replay.prefill_step,
        out: out.into(),
        adapter: replay.adapter,
        composition: replay.composition.clone(),
        taps: Some(TapRequest { step }),
    })
}

fn denoised_request(denoise: &Denoise, model: &Path, step: usize, out: &Path) -> Request {
    Request::Denoise(denoise_request(denoise, model, out, Some(TapRequest { step })))
}

/// The engine writes its taps in model order as `tap.<call>.<order>.<name>`.
fn compare(ours: &SafetensorsFile, theirs: &SafetensorsFile) -> Result<Comparison, ExplainError> {
    let mut names: Vec<_> = ours.names().map(str::to_owned).collect();
    names.sort_by_key(|name| order(name));
    let mut found = Comparison::default();
    for name in names {
        let Some((call, spoken)) = call_and_name(&name) else { continue };
        let oracle_name = format!("tap.{call}.{spoken}");
        if !theirs.contains(&oracle_name) {
            found.engine_only.push(spoken.to_owned());
            continue;
        }
        let report = bit_exact(&ours.view(&name)?, &theirs.view(&oracle_name)?);
        if !report.is_exact() {
            let detail = report.named(spoken).to_string().replace('\n', "\n  ");
            found.first = Some((spoken.to_owned(), call.to_owned(), detail));
            break;
        }
        found.equal.push(spoken.to_owned());
    }
    Ok(found)
}

fn order(name: &str) -> (usize, usize) {
    let mut parts = name.split('.').skip(1).map(|part| part.parse().unwrap_or(usize::MAX));
    (parts.next().unwrap_or(usize::MAX), parts.next().unwrap_or(usize::MAX))
}

fn call_and_name(name: &str) -> Option<(&str, &str)> {
    let (call, rest) = name.strip_prefix("tap.")?.split_once('.')?;
    Some((call, rest.split_once('.')?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_from_ids() {
        assert_eq!(step_of("l1/a/b/decode/step-065"), 65);
        assert_eq!(step_of("l1/a/b/prefill"), 0);
    }

    #[test]
    fn engine_names_sort_by_call_and_order() {
        let mut names = ["tap.1.0.embed", "tap.0.10.norm", "tap.0.2.layers.0.out"];
        names.sort_by_key(|name| order(name));
        assert_eq!(names, ["tap.0.2.layers.0.out", "tap.0.10.norm", "tap.1.0.embed"]);
        assert_eq!(call_and_name("tap.0.2.layers.0.out"), Some(("0", "layers.0.out")));
    }
}
