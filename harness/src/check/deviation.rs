//! Where the reference is wrong: the engine beside the right answer, which it must give, and beside the
//! wrong one, which it must not.

use std::{ops::ControlFlow, path::Path, time::Instant};

use mlx_parity_engine::{
    Array, Batch, Decoder, EngineError, Fault, GenerateOptions, LoadOptions, Model,
    SpeculateOptions,
    array::{from_host, to_host},
    ops::{
        Affine, ScoreMask,
        packed::{Mode, Packed, scaled_dot_product_attention},
    },
    speculate,
};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::l1::{Stop, tell};
use crate::{
    case::{Deviation, FaultName, Kind},
    check,
    compare::{BitReport, bit_exact},
    golden::Golden,
    row::{Outcome, Row},
    worker::{Job, ReplayFiles},
};

/// Positions a ring of the fault `kept-prefix` holds: `max_kv_size` of the oracle.
const KEPT_WINDOW: usize = 16;

/// Tokens guessed at a time in the fault `speculative`: `num_draft_tokens` of the oracle.
const DRAFT_TOKENS: usize = 3;

/// What the queries of the fault `scaled-in-place` are scaled by: that of the oracle.
const SCALE: f32 = 0.25;

/// What the engine answers.
struct Answers {
    /// Along the path that the fault of the reference does not touch.
    right: HostTensor,
    /// Where the reference goes wrong; an error is an answer there.
    instead: Result<HostTensor, EngineError>,
}

/// Runs both checks of the job's case.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let mut pending = job.case.checks().into_iter();
    if let Err(stop) = compare(job, &mut pending, emit) {
        tell(job, &stop, pending, emit);
    }
}

fn compare(
    job: &Job,
    pending: &mut impl Iterator<Item = String>,
    emit: &mut dyn FnMut(Row),
) -> Result<(), Stop> {
    let (Kind::Deviation(deviation), Some(files)) = (&job.case.kind, &job.files) else {
        return Err(Stop::NotAReplay);
    };
    let golden = Golden::open(&files.golden)?;
    let [right, reference] = ["right", "reference"].map(|name| golden.tensor(name));
    let (right, reference) = (right?, reference?);
    let started = Instant::now();
    let answers = answer(job, deviation, files, &golden)?;
    let mut tell = |(outcome, report)| {
        let id = pending.next().unwrap_or_default();
        let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
        emit(Row { report, elapsed_ms, ..check::row(job, id, outcome) });
    };
    tell(beside(&answers.right, &right));
    tell(match &answers.instead {
        Ok(got) => beside(got, &reference),
        Err(error) => (Outcome::Error { message: error.to_string() }, None),
    });
    Ok(())
}

fn beside(got: &HostTensor, want: &HostTensor) -> (Outcome, Option<BitReport>) {
    let report = bit_exact(&got.view(), &want.view());
    if report.is_exact() { (Outcome::Held, None) } else { (Outcome::Differ, Some(report)) }
}

fn answer(
    job: &Job,
    deviation: &Deviation,
    files: &ReplayFiles,
    golden: &Golden,
) -> Result<Answers, Stop> {
    let fault = job.fault.as_deref().map(Fault::parse).transpose()?;
    let options = LoadOptions { fault, ..LoadOptions::default() };
    let model = Model::load(&files.model, &options)?;
    match (deviation.fault, &files.draft) {
        (FaultName::TrimAfterWrap | FaultName::MixedTrim, _) => trimmed(&model, deviation),
        (FaultName::KeptPrefix, _) => {
            let step = deviation.prefill_step;
            let mut decoder = Decoder::bounded(&model, step, KEPT_WINDOW)?;
            let logits = decoder.prefill(&deviation.prompt)?;
            Ok(Answers { right: logits.clone(), instead: Ok(logits) })
        }
        (FaultName::Speculative, Some(draft)) => speculated(&model, draft, deviation),
        (FaultName::Speculative, None) => Err(Stop::NotAReplay),
        (FaultName::PaddedBatch, _) => padded(&model, deviation),
        (FaultName::ScaledInPlace, _) => scaled_in_place(golden),
    }
}

/// The last steps behind a rollback of themselves, and once more behind a trim, which must be refused.
fn trimmed(model: &Model, deviation: &Deviation) -> Result<Answers, Stop> {
    let mut decoder = Decoder::new(model, deviation.prefill_step);
    let (prompt, steps) = deviation.split();
    decoder.prefill(prompt)?;
    decoder.checkpoint();
    stepped(&mut decoder, steps)?;
    decoder.rollback(steps.len())?;
    let right = stepped(&mut decoder, steps)?;
    let instead = decoder.trim(steps.len()).and_then(|_| stepped(&mut decoder, steps));
    Ok(Answers { right, instead })
}

fn stepped(decoder: &mut Decoder<'_>, ids: &[u32]) -> Result<HostTensor, EngineError> {
    let rows: Vec<_> = ids.iter().map(|id| decoder.step(*id)).collect::<Result<_, _>>()?;
    stacked(&rows)
}

/// Logits `[1, vocab]` below each other.
fn stacked(rows: &[HostTensor]) -> Result<HostTensor, EngineError> {
    let bytes = rows.iter().flat_map(HostTensor::bytes).copied().collect();
    let width = rows.first().map_or(0, |row| row.shape()[1]);
    let dtype = rows.first().map_or(Dtype::F32, HostTensor::dtype);
    Ok(HostTensor::new(dtype, [rows.len(), width], bytes)?)
}

/// What is generated with a draft model, greedily.
fn speculated(model: &Model, draft: &Path, deviation: &Deviation) -> Result<Answers, Stop> {
    let draft = Model::load(draft, &LoadOptions::default())?;
    let generate = GenerateOptions {
        prefill_step_size: deviation.prefill_step,
        eos_token_ids: Vec::new(),
        ..GenerateOptions::for_model(model, deviation.steps)
    };
    let options = SpeculateOptions { generate, draft_tokens: DRAFT_TOKENS };
    let go_on = |_| ControlFlow::Continue(());
    let ids = speculate(model, &draft, &deviation.prompt, &options, go_on)?.ids;
    let ids = HostTensor::from_u32([ids.len()], &ids).map_err(EngineError::from)?;
    Ok(Answers { right: ids.clone(), instead: Ok(ids) })
}

/// The second of two rows, which holds half of the first one's prompt: the logits of its single steps, the
/// first of which is the last id of the prompt.
fn padded(model: &Model, deviation: &Deviation) -> Result<Answers, Stop> {
    let (prompt, steps) = deviation.split();
    let mut batch = Batch::new(model, deviation.prefill_step)?;
    let rows = batch.join_padded(&[prompt, &prompt[prompt.len() / 2..]])?;
    let mut found = Vec::new();
    for next in steps.iter().map(Some).chain([None]) {
        batch.step()?;
        found.extend(batch.logits(rows[1])?);
        for (row, id) in rows.iter().zip(next.into_iter().cycle()) {
            batch.force(*row, *id)?;
        }
    }
    let logits = stacked(&found)?;
    Ok(Answers { right: logits.clone(), instead: Ok(logits) })
}

/// Attention over packed keys twice with the same arrays: the second answer is both.
fn scaled_in_place(golden: &Golden) -> Result<Answers, Stop> {
    let operands: Vec<_> =
        (0..7).map(|at| golden.tensor(&format!("operand.{at}"))).collect::<Result<_, _>>()?;
    let arrays: Vec<_> = operands.iter().map(from_host).collect::<Result<_, _>>()?;
    let packed = |parts: &[Array]| Packed {
        words: parts[0].clone(),
        scales: parts[1].clone(),
        biases: Some(parts[2].clone()),
        mode: Mode::Affine(Affine { group_size: 32, bits: 8 }),
    };
    let (keys, values) = (packed(&arrays[1..4]), packed(&arrays[4..7]));
    let attend = || {
        let out =
            scaled_dot_product_attention(&arrays[0], &keys, &values, SCALE, ScoreMask::Causal)?;
        to_host(&out)
    };
    attend()?;
    let second = attend()?;
    Ok(Answers { right: second.clone(), instead: Ok(second) })
}
