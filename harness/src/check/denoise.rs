//! L2: the engine denoises what the oracle denoised, and every step must have its bits.

use std::{collections::BTreeMap, ops::ControlFlow, path::Path, time::Instant};

use mlx_parity_engine::{
    DenoiseOptions, DenoiseStep, EngineError, Fault, LoadOptions, Model, Sampler,
};
use mlx_parity_tensor::{HostTensor, safetensors};

use super::l1::{Stop, tell};
use crate::{
    case::{Denoise, DenoiseSettings, Kind, SamplerName},
    check,
    compare::bit_exact,
    golden::Golden,
    row::{FIRST_IN, Outcome, Row},
    worker::{Job, ReplayFiles},
};

/// Runs every check of the job's case; `emit` gets exactly one row for each.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let mut pending = job.case.checks().into_iter();
    if let Err(stop) = compare(job, &mut pending, emit) {
        tell(job, &stop, pending, emit);
    }
}

fn parts(job: &Job) -> Result<(&Denoise, &ReplayFiles), Stop> {
    match (&job.case.kind, &job.files) {
        (Kind::Denoise(denoise), Some(files)) => Ok((denoise, files)),
        _ => Err(Stop::NotAReplay),
    }
}

fn load(job: &Job, files: &ReplayFiles) -> Result<Model, EngineError> {
    let fault = job.fault.as_deref().map(Fault::parse).transpose()?;
    Model::load(&files.model, &LoadOptions { fault, ..LoadOptions::default() })
}

fn options(settings: &DenoiseSettings) -> DenoiseOptions {
    DenoiseOptions {
        max_tokens: Some(settings.max_tokens),
        denoising_steps: Some(settings.steps),
        min_canvas_length: settings.min_canvas,
        max_canvas_length: settings.max_canvas,
        temperature: settings.temperature,
        sampler: match settings.sampler {
            SamplerName::EntropyBound => Sampler::EntropyBound,
            SamplerName::ConfidenceThreshold => Sampler::ConfidenceThreshold(settings.threshold),
        },
        prefill_step_size: settings.prefill_step,
        seed: settings.seed,
        stop_token_ids: settings.stop.clone(),
        tapped_step: None,
    }
}

fn compare(
    job: &Job,
    pending: &mut impl Iterator<Item = String>,
    emit: &mut dyn FnMut(Row),
) -> Result<(), Stop> {
    let (denoise, files) = parts(job)?;
    let golden = Golden::open(&files.golden)?;
    let mut clock = Clock::start();
    let model = load(job, files)?;
    let mut stopped = None;
    let mut steps = denoise
        .canvas_steps
        .iter()
        .enumerate()
        .flat_map(|(canvas, &steps)| (1..=steps).map(move |step| (canvas + 1, step)));
    let done = model.denoise(&denoise.prompt, &options(&denoise.settings), |step| {
        let told = if steps.next() == Some((step.canvas, step.step)) {
            let id = pending.next().unwrap_or_default();
            row_of(job, id, &golden, step, &mut clock).map(&mut *emit)
        } else {
            Err(Stop::Steps(format!(
                "the engine came to step {} of canvas {}, which the golden does not have",
                step.step, step.canvas
            )))
        };
        match told {
            Ok(()) => ControlFlow::Continue(()),
            Err(stop) => {
                stopped = Some(stop);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(stop) = stopped {
        return Err(stop);
    }
    if let Some((canvas, step)) = steps.next() {
        let message = format!("the engine ended before step {step} of canvas {canvas}");
        return Err(Stop::Steps(message));
    }
    let ids = |ids: &[u32]| HostTensor::from_u32([ids.len()], ids).map_err(EngineError::from);
    let (got, want) = (ids(&done.ids)?, ids(&golden.manifest.steps)?);
    let report = bit_exact(&got.view(), &want.view());
    let exact = report.is_exact();
    let row = check::row(job, pending.next().unwrap_or_default(), outcome(exact));
    emit(clock.time(Row { report: (!exact).then_some(report), ..row }));
    Ok(())
}

/// Compares all tensors of a step, in the order in which they come about.
fn row_of(
    job: &Job,
    id: String,
    golden: &Golden,
    step: &DenoiseStep,
    clock: &mut Clock,
) -> Result<Row, Stop> {
    let tensors = step.tensors()?;
    clock.answered();
    let prefix = format!("canvas.{}.step.{}.", step.canvas, step.step);
    let held = golden.manifest.tensors.keys().filter(|name| name.starts_with(&prefix)).count();
    if held != tensors.len() {
        let names: Vec<_> = tensors.iter().map(|(name, _)| *name).collect();
        let message = format!(
            "step {} of canvas {} gave {}, the golden holds {held} tensors of it",
            step.step,
            step.canvas,
            names.join(", ")
        );
        return Err(Stop::Steps(message));
    }
    let mut first = None;
    let mut apart = Vec::new();
    for (name, tensor) in &tensors {
        let want = golden.tensor(&format!("{prefix}{name}"))?;
        let report = bit_exact(&tensor.view(), &want.view());
        if !report.is_exact() {
            apart.push(*name);
            first.get_or_insert(report);
        }
    }
    let mut row = check::row(job, id, outcome(first.is_none()));
    if let Some((name, others)) = apart.split_first() {
        row.notes.push(format!("{FIRST_IN}{name}"));
        if !others.is_empty() {
            row.notes.push(format!("differs in {} too", others.join(", ")));
        }
    }
    row.report = first;
    Ok(clock.time(row))
}

fn outcome(exact: bool) -> Outcome {
    if exact { Outcome::Held } else { Outcome::Differ }
}

/// Writes the intermediates of a step, counted from 1 over all canvases, to `out` as
/// `tap.0.<order>.<name>`.
pub fn tap(job: &Job, step: usize, out: &Path) -> Result<(), String> {
    let taps = tapped(job, step).map_err(|stop| stop.to_string())?;
    let named: Vec<_> = taps
        .into_iter()
        .enumerate()
        .map(|(order, (name, tensor))| (format!("tap.0.{order}.{name}"), tensor))
        .collect();
    let tensors = named.iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(out, tensors, &BTreeMap::new()).map_err(|error| error.to_string())
}

fn tapped(job: &Job, step: usize) -> Result<Vec<(String, HostTensor)>, Stop> {
    let (denoise, files) = parts(job)?;
    let options = DenoiseOptions { tapped_step: Some(step), ..options(&denoise.settings) };
    let mut taps = Vec::new();
    load(job, files)?.denoise(&denoise.prompt, &options, |step| {
        taps.extend_from_slice(step.taps());
        if taps.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(taps)
}

/// Times a run that is compared while it goes on.
struct Clock {
    /// Since the last row.
    since: Instant,
    engine_ms: f64,
}

impl Clock {
    fn start() -> Self {
        Self { since: Instant::now(), engine_ms: 0.0 }
    }

    /// The engine's part of the row ends here.
    fn answered(&mut self) {
        self.engine_ms = self.since.elapsed().as_secs_f64() * 1e3;
    }

    fn time(&mut self, row: Row) -> Row {
        let elapsed_ms = self.since.elapsed().as_secs_f64() * 1e3;
        let engine_ms = self.engine_ms;
        *self = Self::start();
        Row { elapsed_ms, engine_ms, ..row }
    }
}
