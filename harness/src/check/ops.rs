//! Ops: the engine's answer to each call of a case against the float64 reference.

use std::time::Instant;

use crate::{
    case::Kind,
    check,
    ops::{Bound, Call, Mlx, SuiteError, Verdict, judge},
    row::{Outcome, Row},
    worker::Job,
};

/// Runs every call of the job's case; `emit` gets exactly one row for each, as soon as it is known.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let Kind::Op(case) = &job.case.kind else { return };
    let calls = case.calls();
    for (at, (call, id)) in calls.iter().zip(job.case.checks()).enumerate() {
        let Some(bound) = job.bounds.get(at) else {
            let message = "the job came without a bound for this call".to_owned();
            emit(check::row(job, id, Outcome::Error { message }));
            continue;
        };
        emit(one(job, id, call, case.views, *bound));
    }
}

fn one(job: &Job, id: String, call: &Call, views: bool, bound: Bound) -> Row {
    let started = Instant::now();
    let judged = judge(call, views, bound, &Mlx);
    let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
    Row { elapsed_ms, ..row(job, id, judged) }
}

fn row(job: &Job, id: String, judged: Result<Verdict, SuiteError>) -> Row {
    let verdict = match judged {
        Ok(verdict) => verdict,
        Err(error) => {
            return check::row(job, id, Outcome::Error { message: error.to_string() });
        }
    };
    let outcome = if verdict.held { Outcome::Held } else { Outcome::Differ };
    let mut row = check::row(job, id, outcome);
    row.tolerance = verdict.tolerance;
    row.report = verdict.bits;
    row.convention = verdict.convention.map(|convention| convention.name().to_owned());
    row.notes.extend(verdict.notes);
    row.engine_ms = verdict.engine_ms;
    row
}
