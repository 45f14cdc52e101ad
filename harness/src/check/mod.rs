//! Running a case: the engine answers, the answer is compared, each check becomes a row.

#[cfg(feature = "engine")]
mod composed;
#[cfg(feature = "engine")]
pub mod denoise;
#[cfg(feature = "engine")]
pub mod deviation;
#[cfg(feature = "engine")]
pub mod gate;
#[cfg(feature = "engine")]
pub mod l1;
#[cfg(feature = "engine")]
pub mod meta;
pub mod metal;
#[cfg(feature = "engine")]
pub mod ops;
#[cfg(feature = "engine")]
pub mod trajectory;
pub mod vjp;

use crate::{
    row::{FAULT, Outcome, ROW_SCHEMA, Row},
    worker::Job,
};

/// A row of this job without a comparison.
pub fn row(job: &Job, id: String, outcome: Outcome) -> Row {
    let mut notes = job.notes.clone();
    notes.extend(job.fault.iter().map(|fault| format!("{FAULT}{fault}")));
    Row {
        schema: ROW_SCHEMA,
        id,
        case: job.case.id.clone(),
        tier: job.case.tier,
        subject: job.subject.clone(),
        dtype: job.dtype.clone(),
        oracle: job.case.oracle().to_owned(),
        outcome,
        report: None,
        tolerance: None,
        envelope: None,
        gate: None,
        gradient: None,
        convention: None,
        composition: job.case.composition().map(ToString::to_string),
        notes,
        elapsed_ms: 0.0,
        engine_ms: 0.0,
    }
}
