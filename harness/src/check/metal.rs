//! Metal kernels: each launch of a case, emulated and held to its oracle.

use std::time::Instant;

use mlx_parity_msl_emu::EmuError;
use mlx_parity_tensor::HostTensor;

use crate::{
    case::Kind,
    check,
    metal::{Files, MetalCase, MetalError, MetalVerdict, Trial, judge, prepare},
    ops::Bound,
    row::{NotRunKind, Outcome, Row},
    worker::Job,
};

/// The outputs of the first mode that gave any, and the inputs they are of.
type Before = Option<(String, Vec<HostTensor>)>;

/// Runs every launch of the job's case; `emit` gets exactly one row for each, as soon as it is known.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let Kind::Metal(case) = &job.case.kind else { return };
    let mut before: Before = None;
    for (at, (trial, id)) in case.trials().iter().zip(job.case.checks()).enumerate() {
        let Some((files, bound)) = job.metal.as_ref().zip(job.bounds.get(at)) else {
            let message = "the job came without its files or a bound for this launch".to_owned();
            emit(check::row(job, id, Outcome::Error { message }));
            continue;
        };
        let started = Instant::now();
        let judged = one(case, trial, &job.case.id, files, *bound, &mut before);
        let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
        emit(Row { elapsed_ms, ..row(job, id, judged) });
    }
}

fn one(
    case: &MetalCase,
    trial: &Trial,
    id: &str,
    files: &Files,
    bound: Bound,
    before: &mut Before,
) -> Result<MetalVerdict, MetalError> {
    let prepared = prepare(case, trial, id, files)?;
    let name = trial.inputs_name();
    let earlier = before.as_ref().filter(|(of, _)| *of == name).map(|(_, outputs)| &outputs[..]);
    let first = earlier.is_none();
    let mut verdict = judge(&prepared, trial.mode, case.orders, files, bound, earlier)?;
    let outputs = std::mem::take(&mut verdict.outputs);
    if first && !outputs.is_empty() {
        *before = Some((name, outputs));
    }
    Ok(verdict)
}

fn row(job: &Job, id: String, judged: Result<MetalVerdict, MetalError>) -> Row {
    let verdict = match judged {
        Ok(verdict) => verdict,
        Err(MetalError::Emulator(error @ EmuError::NoCompiler { .. })) => {
            let (kind, message) = (NotRunKind::Unsupported, error.to_string());
            return check::row(job, id, Outcome::NotRun { kind, message });
        }
        Err(error) => return check::row(job, id, Outcome::Error { message: error.to_string() }),
    };
    let outcome = if verdict.held { Outcome::Held } else { Outcome::Differ };
    let mut row = check::row(job, id, outcome);
    row.tolerance = verdict.tolerance;
    row.report = verdict.bits;
    row.notes.extend(verdict.notes);
    row.engine_ms = verdict.kernel_ms;
    row
}
