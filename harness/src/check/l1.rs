//! L1 and L2: the engine replays a golden's ids and must give the oracle's logits bit for bit, under the
//! composition that the case names.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    path::Path,
    time::Instant,
};

use mlx_parity_engine::{
    Adapter, Decoder, EngineError, Fault, LoadOptions, Model, Taps, Tokenizer,
};
use mlx_parity_tensor::{HostTensor, safetensors};

use crate::{
    case::{AdapterUse, DecodeFrom, Prompt, Replay},
    check::{self, composed},
    compare::{BitReport, bit_exact},
    golden::{Golden, GoldenError},
    model::ADAPTERS,
    row::{NotRunKind, Outcome, Row},
    worker::{Job, ReplayFiles},
};

/// Why a case ended before all its checks were made.
pub(super) enum Stop {
    Golden(GoldenError),
    Engine(EngineError),
    NotAReplay,
    /// The engine took other steps than the golden.
    Steps(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Golden(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::NotAReplay => f.write_str("this case replays no model"),
            Self::Steps(message) => f.write_str(message),
        }
    }
}

/// What a replay needs of its job.
fn parts(job: &Job) -> Result<(&Replay, &ReplayFiles), Stop> {
    job.case.replay().zip(job.files.as_ref()).ok_or(Stop::NotAReplay)
}

impl From<GoldenError> for Stop {
    fn from(error: GoldenError) -> Self {
        Self::Golden(error)
    }
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// Runs every check of the job's case; `emit` gets exactly one row for each.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let mut pending = job.case.checks().into_iter();
    if let Err(stop) = replay(job, &mut pending, emit) {
        tell(job, &stop, pending, emit);
    }
}

/// Rows of the checks that were not made: the first says why.
pub(super) fn tell(
    job: &Job,
    stop: &Stop,
    mut pending: impl Iterator<Item = String>,
    emit: &mut dyn FnMut(Row),
) {
    let message = stop.to_string();
    let (first, rest) = if let Stop::Golden(_) = stop {
        let outcome = Outcome::NotRun { kind: NotRunKind::GoldenUnfit, message };
        (outcome.clone(), outcome)
    } else {
        let kind = NotRunKind::Interrupted;
        let rest = "an earlier check of this case failed".to_owned();
        (Outcome::Error { message }, Outcome::NotRun { kind, message: rest })
    };
    if let Some(id) = pending.next() {
        emit(check::row(job, id, first));
    }
    for id in pending {
        emit(check::row(job, id, rest.clone()));
    }
}

fn replay(
    job: &Job,
    pending: &mut impl Iterator<Item = String>,
    emit: &mut dyn FnMut(Row),
) -> Result<(), Stop> {
    let (replay, files) = parts(job)?;
    let golden = Golden::open(&files.golden)?;
    let prefill = golden.tensor("prefill.logits")?;
    let decode = (replay.decode > 0).then(|| golden.tensor("decode.logits")).transpose()?;
    let mut next = || pending.next().unwrap_or_default();

    if let Prompt::Text(text) = &replay.prompt {
        let timed = Timed::call(|| Tokenizer::load(&files.model)?.encode(text))?;
        let all = [golden.manifest.prompt.as_slice(), &golden.manifest.steps].concat();
        let want =
            if replay.decode_from == DecodeFrom::Prompt { &all } else { &golden.manifest.prompt };
        let (got, want) = (ids(&timed.value)?, ids(want)?);
        emit(timed.row(job, next(), &bit_exact(&got.view(), &want.view())));
    }
    let fault = job.fault.as_deref().map(Fault::parse).transpose()?;
    let loaded = Timed::call(|| load(replay, files, fault))?;
    let mut decoder = composed::decoder(&loaded.value, replay)?;
    let timed = loaded.then(|| decoder.prefill(&golden.manifest.prompt))?;
    emit(timed.row(job, next(), &bit_exact(&timed.value.view(), &prefill.view())));
    for (step, id) in golden.manifest.steps.iter().enumerate() {
        let Some(decode) = &decode else { break };
        let timed = Timed::call(|| decoder.step(*id))?;
        let want = decode.rows(step..step + 1);
        emit(timed.row(job, next(), &bit_exact(&timed.value.view(), &want.view())));
    }
    if replay.composition.is_some() {
        emit(check::row(job, next(), same_caches(&decoder, &golden)));
    }
    Ok(())
}

/// Whether the engine ends with the caches that the oracle ended with.
fn same_caches(decoder: &Decoder<'_>, golden: &Golden) -> Outcome {
    let (got, want) = (decoder.cache_names(), &golden.manifest.composition.cache);
    if got == *want {
        return Outcome::Held;
    }
    Outcome::Error { message: format!("caches {got:?}, the golden was computed with {want:?}") }
}

/// The model, with its adapter where the case asks for it.
fn load(replay: &Replay, files: &ReplayFiles, fault: Option<Fault>) -> Result<Model, EngineError> {
    let mut model = Model::load(&files.model, &LoadOptions { fault, ..LoadOptions::default() })?;
    if let Some(adapter) = replay.adapter {
        model.mount(&Adapter::load(&files.model.join(ADAPTERS))?)?;
        if adapter == AdapterUse::Fused {
            model.fuse(&[0])?;
        }
    }
    Ok(model)
}

/// Replays up to `step` and writes that step's intermediates to `out` as
/// `tap.<call>.<order>.<name>`, the calls of a split prefill counted from 0.
pub fn tap(job: &Job, step: usize, out: &Path) -> Result<(), String> {
    let taps = tapped(job, step).map_err(|stop| stop.to_string())?;
    let mut call = 0;
    let mut seen = HashSet::new();
    let named: Vec<_> = taps
        .into_iter()
        .enumerate()
        .map(|(order, (name, tensor))| {
            if !seen.insert(name.clone()) {
                call += 1;
                seen = HashSet::from([name.clone()]);
            }
            (format!("tap.{call}.{order}.{name}"), tensor)
        })
        .collect();
    let tensors = named.iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(out, tensors, &BTreeMap::new()).map_err(|error| error.to_string())
}

fn tapped(job: &Job, step: usize) -> Result<Vec<(String, HostTensor)>, Stop> {
    let (replay, files) = parts(job)?;
    let golden = Golden::open(&files.golden)?;
    let fault = job.fault.as_deref().map(Fault::parse).transpose()?;
    let model = load(replay, files, fault)?;
    let mut decoder = composed::decoder(&model, replay)?;
    let watch = |at: usize| if at == step { Taps::All } else { Taps::Off };
    decoder.set_taps(watch(0));
    decoder.prefill(&golden.manifest.prompt)?;
    for (at, id) in golden.manifest.steps.iter().enumerate().take(step) {
        decoder.set_taps(watch(at + 1));
        decoder.step(*id)?;
    }
    Ok(decoder.take_taps())
}

fn ids(ids: &[u32]) -> Result<HostTensor, Stop> {
    HostTensor::from_u32([ids.len()], ids).map_err(|error| Stop::Engine(error.into()))
}

/// An engine's answer and the time it took.
struct Timed<T> {
    value: T,
    started: Instant,
    engine_ms: f64,
}

impl<T> Timed<T> {
    fn call(f: impl FnOnce() -> Result<T, EngineError>) -> Result<Self, EngineError> {
        let started = Instant::now();
        let value = f()?;
        Ok(Self { value, started, engine_ms: started.elapsed().as_secs_f64() * 1e3 })
    }

    /// A further call, timed together with this one.
    fn then<U>(&self, f: impl FnOnce() -> Result<U, EngineError>) -> Result<Timed<U>, EngineError> {
        let further = Timed::call(f)?;
        Ok(Timed {
            engine_ms: self.engine_ms + further.engine_ms,
            started: self.started,
            ..further
        })
    }

    fn row(&self, job: &Job, id: String, report: &BitReport) -> Row {
        let outcome = if report.is_exact() { Outcome::Held } else { Outcome::Differ };
        Row {
            report: (!report.is_exact()).then(|| report.clone()),
            elapsed_ms: self.started.elapsed().as_secs_f64() * 1e3,
            engine_ms: self.engine_ms,
            ..check::row(job, id, outcome)
        }
    }
}
