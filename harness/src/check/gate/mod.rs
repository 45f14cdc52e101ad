//! A stage of the gate in a worker: the engine is the baseline, the kernel runs beside it.

mod lanes;
mod load;
mod model;
mod speed;

use std::time::Instant;

use mlx_parity_engine::kernels;
use mlx_parity_kernels::{
    Call, Candidate, Claim, ShapeClass, candidate,
    ledger::{Evidence, Verdict},
};
use mlx_parity_tensor::HostTensor;

use crate::{
    case::Kind,
    check,
    gate::{
        Bank, Composed, Effort, GateCase, GateRow, Scale, Stage, Weighed, emulated, mutants,
        replay_line, replayed, told,
    },
    row::{NotRunKind, Outcome, Row},
    worker::Job,
};

/// The engine's composed ops.
pub struct Engine;

impl Composed for Engine {
    fn baseline(&self, kernel: &str, call: &Call<'_>) -> Result<Vec<HostTensor>, String> {
        kernels::baseline(kernel, call).map_err(|error| error.to_string())
    }
}

/// Runs the job's stage; `emit` gets exactly one row for each kind of evidence it gives.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let Kind::Gate(case) = &job.case.kind else { return };
    let started = Instant::now();
    let found = subject(case).and_then(|subject| stage(case, &subject));
    let ids = job.case.checks();
    match found {
        Ok(rows) => {
            for (id, gate) in ids.into_iter().zip(rows) {
                let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
                emit(Row { elapsed_ms, ..row(job, id, gate) });
            }
        }
        Err(message) => {
            for id in ids {
                emit(check::row(job, id, Outcome::Error { message: message.clone() }));
            }
        }
    }
}

fn row(job: &Job, id: String, gate: GateRow) -> Row {
    let missing = |message: &str| Outcome::NotRun {
        kind: NotRunKind::Unsupported,
        message: message.to_owned(),
    };
    let outcome = match gate.verdict() {
        Verdict::Held => Outcome::Held,
        Verdict::Failed => Outcome::Differ,
        Verdict::Missing | Verdict::Weak | Verdict::NotApplicable => missing(&gate.what),
    };
    let envelope = None;
    Row { gate: Some(gate), envelope, ..check::row(job, id, outcome) }
}

/// What a case is about.
struct Subject {
    candidate: &'static dyn Candidate,
    class: ShapeClass,
}

fn subject(case: &GateCase) -> Result<Subject, String> {
    let candidate =
        candidate(&case.kernel).ok_or_else(|| format!("there is no kernel `{}`", case.kernel))?;
    let class = candidate.classes().iter().find(|class| class.name == case.class);
    let class = class.ok_or_else(|| format!("{} has no class `{}`", case.kernel, case.class))?;
    let digest = candidate.spec().digest();
    if digest != case.digest {
        return Err(format!(
            "the worker's sources of {} are {digest}, wanted {}",
            case.kernel, case.digest
        ));
    }
    Ok(Subject { candidate, class: *class })
}

fn stage(case: &GateCase, subject: &Subject) -> Result<Vec<GateRow>, String> {
    match &case.stage {
        Stage::Trials => trials(case, subject),
        Stage::Power { screen } => {
            let bank = bank(case, subject)?;
            let clean = Scale {
                paths: vec![mlx_parity_kernels::Path::Auto],
                ..Scale::new(subject.candidate, &bank)
            };
            let mut reports = mutants::all(subject.candidate, &bank, &clean.weigh());
            if let Some(task) = screen {
                model::screen(case, task, &mut reports)?;
            }
            let (verdict, what) = mutants::finding(&reports);
            Ok(vec![GateRow { mutants: reports, ..GateRow::new(Evidence::Power, verdict, what) }])
        }
        Stage::Model(task) => model::weigh(case, subject.candidate, task),
        Stage::Speed => speed::weigh(case, subject.candidate, &subject.class),
        Stage::Emulated { files, mutants } => {
            emulated::weigh(case, subject.candidate, &Engine, &subject.class, files, *mutants)
        }
        Stage::Replay { trial, mutant } => replayed(
            subject.candidate,
            &Engine,
            &subject.class,
            case.dtype,
            trial,
            mutant.as_deref(),
        ),
    }
}

fn bank(case: &GateCase, subject: &Subject) -> Result<Bank, String> {
    let effort = if case.quick { Effort::Quick } else { Effort::Full };
    Bank::new(subject.candidate, &Engine, &subject.class, case.dtype, effort)
}

fn trials(case: &GateCase, subject: &Subject) -> Result<Vec<GateRow>, String> {
    let bank = bank(case, subject)?;
    let weighed = Scale::new(subject.candidate, &bank).weigh();
    let mut rows: Vec<_> = Evidence::ALL
        .into_iter()
        .zip(&weighed.tallies)
        .map(|(evidence, tally)| {
            let (verdict, what) = told(evidence, tally, subject.candidate);
            let mut row = GateRow::new(evidence, verdict, what);
            row.numbers = tally.worst.iter().map(|(name, x)| ((*name).to_owned(), *x)).collect();
            row.replay = tally.breach.as_ref().map(|breach| {
                let dtype = if breach.twin { mlx_parity_tensor::Dtype::F32 } else { case.dtype };
                replay_line(&case.kernel, dtype, &case.class, &breach.trial, None)
            });
            row
        })
        .collect();
    rows.push(engaged(case, subject, &bank, &weighed)?);
    Ok(rows)
}

/// Whether the engine runs the kernel on its arrays, with the kernel's bits, and whether those are not the baseline's.
fn engaged(
    case: &GateCase,
    subject: &Subject,
    bank: &Bank,
    weighed: &Weighed,
) -> Result<GateRow, String> {
    let row = |verdict, what: String| Ok(GateRow::new(Evidence::Engaged, verdict, what));
    let Some(known) = bank.trials.first() else { return row(Verdict::Missing, "no trial".into()) };
    let error = |error: mlx_parity_engine::EngineError| error.to_string();
    let before = kernels::dispatches_of(&case.kernel, &case.class);
    let prepared = kernels::Prepared::new(&case.kernel, &known.trial.call()).map_err(error)?;
    let fused = prepared.fused(mlx_parity_kernels::How::new()).map_err(error)?;
    let through = fused.to_host().map_err(error)?;
    let counted = kernels::dispatches_of(&case.kernel, &case.class) - before;
    if counted != 1 {
        return row(Verdict::Failed, format!("one call moved the counter by {counted}"));
    }
    let alone = crate::gate::run(subject.candidate, &known.trial, mlx_parity_kernels::How::new())?;
    let spread = crate::gate::spread(subject.candidate, "host").is_some();
    if let (false, Some(what)) =
        (spread, crate::gate::evidence::exactness::check(&through, &alone.results))
    {
        return row(Verdict::Failed, format!("{}: on MLX's arrays: {what}", known.trial.name));
    }
    let differing = weighed.differing;
    match (subject.candidate.spec().claim, differing) {
        (Claim::Exact, _) => {
            row(Verdict::Held, "counter moved, the engine's call has the kernel's bits".into())
        }
        (Claim::Envelope, 0) => {
            row(Verdict::Failed, "no byte differs from the baseline in any trial".into())
        }
        (Claim::Envelope, n) => {
            row(Verdict::Held, format!("counter moved, bytes differ from the baseline in {n} runs"))
        }
    }
}
