//! The comparison itself.

use std::time::Instant;

use mlx_parity_tensor::HostTensor;

use super::{
    control::{self, Control, ControlLane},
    error::{KlError, name},
    options::{Asked, Options},
    pass::{pass, score_call},
    plan::Plan,
    record::{Record, Scored},
    report::{Histogram, REPORT_SCHEMA, Report, Text},
    summing,
    windows::Call,
    worker::peak_memory,
};
use crate::{
    digest,
    stats::{Position, Side},
    store::Writer,
};

/// Bins of the profile by place in a window.
const PLACES: usize = 64;

/// NaNs and infinities that a report locates.
const LOCATED: usize = 16;

/// Watches a comparison as it goes.
pub trait Observer {
    /// Something begins that takes so many positions, of which some are done already.
    fn begins(&mut self, what: &str, positions: usize, done: usize);
    /// So many more positions are done.
    fn scored(&mut self, positions: usize);
}

/// Compares two sides.
///
/// # Errors
/// [`KlError`]; what was scored until then is on disk.
pub fn compare(options: &Options, observer: &mut dyn Observer) -> Result<Report, KlError> {
    let started = Instant::now();
    let mut plan = Plan::make(options)?;
    let digest = plan.digest(options);
    let mut record = Record::open(&options.record, &digest, &plan.windows, options.resume)?;
    let resumed = record.done().iter().map(|scored| scored.positions.len()).sum();
    observer.begins("scoring", plan.positions(), resumed);
    main_pass(&mut plan, options, &mut record, observer)?;
    let mut peak = plan
        .workers
        .iter()
        .try_fold(0, |sum, worker| worker.borrow().peak_memory().map(|peak| sum + peak));
    // Weights go before the control lanes load theirs.
    plan.workers.clear();
    let control = control_lanes(&plan, options, &record, &mut peak, observer)?;
    let peak_memory = peak.and_then(|peak| Some(peak + peak_memory("self")?));
    let report = report(&plan, options, &record, control);
    Ok(Report { seconds: started.elapsed().as_secs_f64(), resumed, peak_memory, ..report })
}

fn main_pass(
    plan: &mut Plan,
    options: &Options,
    record: &mut Record,
    observer: &mut dyn Observer,
) -> Result<(), KlError> {
    let done = record.done().len();
    let calls = plan.calls(done);
    let kept_windows = plan.control_windows(options.control);
    let first_row = calls.first().map_or(plan.positions(), |call| call.rows.start);
    let mut keeper = Keeper::new(plan, first_row);
    let mut open = empty(done);
    let Some([mut teacher, mut student]) = plan.feeds.take() else { return Ok(()) };
    let tokens = &plan.tokens;
    pass(&calls, &tokens.ids, [teacher.as_mut(), student.as_mut()], |call, logits| {
        if !call.rows.is_empty() {
            if call.window < kept_windows {
                keep_engines(options, record, call, &logits)?;
            }
            keeper.append(call, &logits[0])?;
            let found = score_call(call, [&logits[0], &logits[1]], tokens, options)?;
            observer.scored(found.positions.len());
            open.positions.extend(found.positions);
            open.nonfinite.extend(found.nonfinite);
            open.nonfinite_teacher += found.nonfinite_teacher;
            open.nonfinite_student += found.nonfinite_student;
        }
        if call.last {
            keeper.flush()?;
            record.push(std::mem::replace(&mut open, empty(call.window + 1)))?;
        }
        Ok(())
    })?;
    keeper.finish()
}

fn empty(window: usize) -> Scored {
    Scored {
        window,
        positions: Vec::new(),
        nonfinite: Vec::new(),
        nonfinite_teacher: 0,
        nonfinite_student: 0,
    }
}

fn keep_engines(
    options: &Options,
    record: &Record,
    call: &Call,
    logits: &[HostTensor; 2],
) -> Result<(), KlError> {
    for (side, asked, logits) in [
        (Side::Teacher, &options.teacher, &logits[0]),
        (Side::Student, &options.student, &logits[1]),
    ] {
        if let Asked::Engine { .. } = asked {
            control::keep(record, name(side), call, logits)?;
        }
    }
    Ok(())
}

/// Leaves the teacher's logits in the store, behind what an earlier sitting left there.
struct Keeper(Option<Writer>);

impl Keeper {
    fn new(plan: &mut Plan, first_row: usize) -> Self {
        let writer = plan.writer.take();
        if let Some(there) = writer.as_ref().map(Writer::rows)
            && there < first_row
        {
            plan.notes.push(format!(
                "the teacher is not kept: the run goes on from position {first_row}, the store \
                 has {there}; keep it from the start"
            ));
            return Self(None);
        }
        Self(writer)
    }

    fn append(&mut self, call: &Call, logits: &HostTensor) -> Result<(), KlError> {
        let Some(writer) = &mut self.0 else { return Ok(()) };
        let there = writer.rows().saturating_sub(call.rows.start).min(call.rows.len());
        if there < call.rows.len() {
            writer.append(&logits.view().rows(there..call.rows.len()))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), KlError> {
        Ok(self.0.as_mut().map_or(Ok(()), Writer::flush)?)
    }

    fn finish(self) -> Result<(), KlError> {
        if let Some(writer) = self.0 {
            writer.finish()?;
        }
        Ok(())
    }
}

/// The teacher always, the student where it computes, and whatever should be as the teacher is.
fn control_lanes(
    plan: &Plan,
    options: &Options,
    record: &Record,
    peak: &mut Option<u64>,
    observer: &mut dyn Observer,
) -> Result<Vec<ControlLane>, KlError> {
    if let Some(lanes) = record.lanes()? {
        return Ok(lanes);
    }
    let control = Control { plan, options, record };
    let mut lanes = Vec::new();
    for (side, asked) in [(Side::Teacher, &options.teacher), (Side::Student, &options.student)] {
        if side == Side::Student
            && (!matches!(asked, Asked::Engine { .. }) || *asked == options.teacher)
        {
            continue;
        }
        let what = format!("control: {} twice", name(side));
        observer.begins(&what, 0, 0);
        let (lane, alone) = control.twice(name(side), asked)?;
        *peak = peak.zip(alone).map_or(*peak, |(peak, alone)| Some(peak.max(alone)));
        lanes.push(lane);
    }
    for other in control.elsewhere()?.iter().chain(&options.beside) {
        observer.begins(&format!("control: teacher beside {other}"), 0, 0);
        lanes.push(control.beside(&options.teacher, other)?);
    }
    record.keep_lanes(&lanes)?;
    Ok(lanes)
}

fn report(plan: &Plan, options: &Options, record: &Record, control: Vec<ControlLane>) -> Report {
    let done = record.done();
    let positions: Vec<Position> =
        done.iter().flat_map(|scored| scored.positions.iter().copied()).collect();
    let noise = control.iter().map(|lane| lane.flipped_margin).fold(0.0, f64::max);
    let clusters = summing::clusters(&plan.windows, plan.tokens.cut.window);
    let summary = summing::summary(&positions, &clusters, noise, &options.statistics);
    let nonfinite = done.iter().map(|s| s.nonfinite_teacher + s.nonfinite_student).sum();
    let ids: Vec<u8> = plan.tokens.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    Report {
        schema: REPORT_SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        teacher: plan.teacher.clone(),
        student: plan.student.clone(),
        text: Text {
            from: plan.tokens.from.clone(),
            ids: digest::of_bytes(&ids),
            tokens: plan.tokens.ids.len(),
            cut: plan.tokens.cut.clone(),
            windows: plan.windows.len(),
            call: plan.call,
        },
        verdict: options.thresholds.judge(&summary, &control, nonfinite),
        clusters,
        summary,
        by_place: summing::by_place(&positions, &plan.windows, PLACES),
        histogram: Histogram::of(positions.iter().map(|position| position.kl)),
        nonfinite: done.iter().flat_map(|s| s.nonfinite.iter().cloned()).take(LOCATED).collect(),
        control,
        notes: plan.notes.clone(),
        seconds: 0.0,
        resumed: 0,
        peak_memory: None,
        record: record.dir().display().to_string(),
    }
}
