//! Gradients: each point of a case beside finite differences.

use std::time::Instant;

use crate::{
    case::Kind,
    check,
    gradcheck::{self, GradError, GradientReport, Point, VjpCase, kernel::Fused},
    row::{NotRunKind, Outcome, Row},
    worker::Job,
};

/// A report and the time inside the engine in milliseconds.
type Checked = Result<(GradientReport, f64), GradError>;

/// Runs every point of the job's case; `emit` gets exactly one row for each, as soon as it is known.
pub fn run(job: &Job, emit: &mut dyn FnMut(Row)) {
    let Kind::Vjp(case) = &job.case.kind else { return };
    for (point, id) in case.points().iter().zip(job.case.checks()) {
        let started = Instant::now();
        let row = if let Some(checked) = one(case, point) {
            judged(job, id, checked)
        } else {
            let message = "this build has no engine".to_owned();
            let kind = NotRunKind::Unsupported;
            check::row(job, id, Outcome::NotRun { kind, message })
        };
        emit(Row { elapsed_ms: started.elapsed().as_secs_f64() * 1e3, ..row });
    }
}

fn judged(job: &Job, id: String, checked: Checked) -> Row {
    let (report, engine_ms) = match checked {
        Ok(checked) => checked,
        Err(error) => return check::row(job, id, Outcome::Error { message: error.to_string() }),
    };
    let outcome = if report.held { Outcome::Held } else { Outcome::Differ };
    Row { gradient: Some(report), engine_ms, ..check::row(job, id, outcome) }
}

/// One point; none where only the engine could answer and there is none.
#[cfg_attr(
    feature = "engine",
    expect(clippy::unnecessary_wraps, reason = "without the engine there may be none")
)]
fn one(case: &VjpCase, point: &Point) -> Option<Checked> {
    match point {
        Point::Kernel { kernel, class, sizes } => Some(fused(case, point, kernel, class, sizes)),
        #[cfg(feature = "engine")]
        Point::Op(_) | Point::Composite(_) => Some(traced(case, point)),
        #[cfg(not(feature = "engine"))]
        Point::Op(_) | Point::Composite(_) => None,
    }
}

fn fused(case: &VjpCase, point: &Point, kernel: &str, class: &str, sizes: &[usize]) -> Checked {
    let settings = case.settings(point);
    let how = mlx_parity_kernels::How::new();
    let fused = Fused::new(kernel, class, sizes, case.dtype, settings.seed, how)?;
    Ok((gradcheck::check(&fused, &fused.operands()?, &settings)?, 0.0))
}

#[cfg(feature = "engine")]
fn traced(case: &VjpCase, point: &Point) -> Checked {
    use crate::gradcheck::{composite, traced::Question};
    let settings = case.settings(point);
    let question = match point {
        Point::Op(call) => Question::op(call, &case.wrt, &case.positive)?,
        Point::Composite(name) => {
            let composite = composite(name)
                .ok_or_else(|| GradError::Subject(format!("there is no composite `{name}`")))?;
            Question::composite(composite, case.dtype, settings.seed, &case.wrt)?
        }
        Point::Kernel { .. } => {
            return Err(GradError::Subject("a kernel has no engine to ask".to_owned()));
        }
    };
    let report = gradcheck::check(&question.function, &question.operands, &settings)?;
    Ok((report, question.function.spent_ms()))
}
