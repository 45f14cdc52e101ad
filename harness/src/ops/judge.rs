//! One call, one verdict. Pure given a [`Subject`].
//!
//! In order: the form of the outputs; their values, by class and then in units of the output dtype at
//! the condition; the operands, which must be unchanged; and every other layout of the operands, which
//! must give the same bits, or keep the bound where the suite says why.

use std::borrow::Cow;

use mlx_parity_oracles::{Answer, Convention};
use mlx_parity_tensor::{HostTensor, Layout};

use super::{
    Bound, Call, LayoutRule, Source, Suite, SuiteError,
    subject::{Reply, Subject, logical},
    suite,
};
use crate::compare::{
    BitReport, ToleranceReport, bit_exact, check_tolerance, error::LengthMismatch, error_stats,
};

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Everything held.
    pub held: bool,
    /// The values against the reference: of the output that is farthest over, or nearest to, its
    /// bound.
    pub tolerance: Option<ToleranceReport>,
    /// The first pair that should have had the same form or bits and had not.
    pub bits: Option<BitReport>,
    /// The wrong convention whose answer the subject gave.
    pub convention: Option<Convention>,
    /// What failed, and where.
    pub notes: Vec<String>,
    /// Time inside the subject, in milliseconds.
    pub engine_ms: f64,
}

/// Judges one call; `views` repeats it with the operands in every other layout.
///
/// # Errors
/// [`SuiteError`] where the question is wrong or the subject refuses it.
pub fn judge(
    call: &Call,
    views: bool,
    bound: Bound,
    subject: &dyn Subject,
) -> Result<Verdict, SuiteError> {
    let suite = suite(call.op);
    let operands = suite.operands(call, &mut Source::new(call.seed()))?;
    let mut trial = Trial { call, suite, bound, subject, verdict: Verdict::new() };
    let reply = trial.values(&operands)?;
    if views && trial.verdict.held {
        trial.layouts(&operands, &reply)?;
    }
    Ok(trial.verdict)
}

impl Verdict {
    const fn new() -> Self {
        Self {
            held: true,
            tolerance: None,
            bits: None,
            convention: None,
            notes: Vec::new(),
            engine_ms: 0.0,
        }
    }

    fn fail(&mut self, note: String) {
        self.held = false;
        self.notes.push(note);
    }

    /// Fails unless the two are the same; keeps the first report.
    fn same(&mut self, got: &HostTensor, want: &HostTensor, what: &str) {
        let report = bit_exact(&got.view(), &want.view());
        if !report.is_exact() {
            self.fail(what.to_owned());
            self.bits.get_or_insert(report);
        }
    }
}

struct Trial<'a> {
    call: &'a Call,
    suite: &'static dyn Suite,
    bound: Bound,
    subject: &'a dyn Subject,
    verdict: Verdict,
}

impl Trial<'_> {
    /// Contiguous operands against the reference.
    fn values(&mut self, operands: &[HostTensor]) -> Result<Reply, SuiteError> {
        let answers = self.suite.reference(self.call, operands)?;
        let reply = self.ask(operands, operands, Layout::Contiguous)?;
        if !self.forms(&reply.outputs, &answers) {
            return Ok(reply);
        }
        let reports = judged(&reply.outputs, &answers, self.bound)?;
        if !reports.iter().all(|report| report.held) {
            self.explain(operands, &reply.outputs, &answers, &reports)?;
        }
        self.verdict.tolerance = worst(reports);
        Ok(reply)
    }

    fn ask(
        &mut self,
        operands: &[HostTensor],
        values: &[HostTensor],
        layout: Layout,
    ) -> Result<Reply, SuiteError> {
        let reply = self.subject.reply(self.call, operands, layout)?;
        self.verdict.engine_ms += reply.engine_ms;
        for (i, (after, before)) in reply.operands_after.iter().zip(values).enumerate() {
            let what = format!("operand {i} is changed by the call ({})", layout.name());
            self.verdict.same(after, before, &what);
        }
        Ok(reply)
    }

    /// Number, dtypes and shapes of the outputs.
    fn forms(&mut self, outputs: &[HostTensor], answers: &[Answer]) -> bool {
        let dtypes = self.suite.outputs(self.call);
        if outputs.len() != answers.len() || dtypes.len() != answers.len() {
            let (found, wanted) = (outputs.len(), answers.len());
            self.verdict.fail(format!("{found} outputs, wanted {wanted}"));
            return false;
        }
        for (i, ((output, answer), dtype)) in outputs.iter().zip(answers).zip(dtypes).enumerate() {
            let (shape, wanted) = (output.shape(), answer.value.shape());
            if output.dtype() != dtype || shape != wanted {
                self.verdict.fail(format!(
                    "output {i} is {} {shape:?}, wanted {dtype} {wanted:?}",
                    output.dtype()
                ));
            }
        }
        self.verdict.held
    }

    /// What is known of wrong values: which output, where the error is, whose convention it is.
    fn explain(
        &mut self,
        operands: &[HostTensor],
        outputs: &[HostTensor],
        answers: &[Answer],
        reports: &[ToleranceReport],
    ) -> Result<(), SuiteError> {
        for (i, report) in reports.iter().enumerate().filter(|(_, report)| !report.held) {
            if reports.len() > 1 {
                self.verdict.fail(format!("output {i}: {report}"));
            }
            let anatomy = anatomy(&outputs[i], &answers[i])?;
            self.verdict.notes.extend(anatomy);
        }
        self.verdict.held = false;
        for (convention, answers) in self.suite.conventions(self.call, operands)? {
            let same_form = answers.len() == outputs.len()
                && answers.iter().zip(outputs).all(|(a, o)| a.value.shape() == o.shape());
            if same_form && judged(outputs, &answers, self.bound)?.iter().all(|r| r.held) {
                self.verdict.convention.get_or_insert(convention);
            }
        }
        Ok(())
    }

    fn layouts(&mut self, operands: &[HostTensor], contiguous: &Reply) -> Result<(), SuiteError> {
        let rule = self.suite.layouts(self.call);
        if rule == LayoutRule::Contiguous {
            return Ok(());
        }
        for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Contiguous) {
            let (values, taken) = logical(operands, layout);
            if taken {
                self.layout(operands, &values, contiguous, layout, rule)?;
            }
        }
        Ok(())
    }

    fn layout(
        &mut self,
        operands: &[HostTensor],
        values: &[HostTensor],
        contiguous: &Reply,
        layout: Layout,
        rule: LayoutRule,
    ) -> Result<(), SuiteError> {
        let reply = self.ask(operands, values, layout)?;
        let name = layout.name();
        if let LayoutRule::WithinBound(why) = rule {
            let answers = self.suite.reference(self.call, values)?;
            if !self.forms(&reply.outputs, &answers) {
                return Ok(());
            }
            for report in judged(&reply.outputs, &answers, self.bound)? {
                if !report.held {
                    self.verdict.fail(format!("operands {name} (may differ: {why}): {report}"));
                }
            }
            return Ok(());
        }
        let same = values.iter().zip(operands).all(|(a, b)| a.bytes() == b.bytes());
        let again;
        let wanted = if same {
            &contiguous.outputs
        } else {
            again = self.ask(values, values, Layout::Contiguous)?;
            &again.outputs
        };
        for (i, (got, want)) in reply.outputs.iter().zip(wanted).enumerate() {
            let what = format!("output {i} depends on the layout: {name} against contiguous");
            // Which of several NaNs an op passes on is nowhere defined.
            if !bit_exact(&got.view(), &want.view()).only_nan_payload {
                self.verdict.same(got, want, &what);
            }
        }
        Ok(())
    }
}

/// One report for each output.
fn judged(
    outputs: &[HostTensor],
    answers: &[Answer],
    bound: Bound,
) -> Result<Vec<ToleranceReport>, SuiteError> {
    let pairs = outputs.iter().zip(answers);
    let report = |(output, answer)| report(output, answer, bound);
    Ok(pairs.map(report).collect::<Result<_, _>>()?)
}

fn report(
    output: &HostTensor,
    answer: &Answer,
    bound: Bound,
) -> Result<ToleranceReport, LengthMismatch> {
    let want = wanted(output, answer);
    let condition = answer.condition.data();
    check_tolerance(&output.view(), &want, condition, bound.units, bound.zeros)
}

/// The reference; for integers that it leaves undefined, marked NaN, whatever was found.
fn wanted<'a>(output: &HostTensor, answer: &'a Answer) -> Cow<'a, [f64]> {
    let values = answer.value.data();
    if output.dtype().is_float() || !values.iter().any(|v| v.is_nan()) {
        return Cow::Borrowed(values);
    }
    let pairs = values.iter().zip(output.to_f64());
    Cow::Owned(pairs.map(|(want, got)| if want.is_nan() { got } else { *want }).collect())
}

fn worst(reports: Vec<ToleranceReport>) -> Option<ToleranceReport> {
    let gravity = |report: &ToleranceReport| (!report.held, report.apart);
    reports.into_iter().reduce(|worst, report| {
        let graver = gravity(&report).cmp(&gravity(&worst));
        if graver.is_gt() || (graver.is_eq() && report.minimum > worst.minimum) {
            report
        } else {
            worst
        }
    })
}

/// Error by magnitude of the wanted value, and the row where it is greatest.
fn anatomy(output: &HostTensor, answer: &Answer) -> Result<Vec<String>, SuiteError> {
    if !output.dtype().is_float() {
        return Ok(Vec::new());
    }
    let stats = error_stats(&output.view(), answer.value.data())?;
    let buckets: Vec<_> = stats
        .by_magnitude
        .iter()
        .filter(|bucket| bucket.max_abs > 0.0)
        .map(|bucket| format!("|want| ≥ {:.1e}: {:.2e}", bucket.low, bucket.max_abs))
        .collect();
    let mut notes = Vec::new();
    if !buckets.is_empty() {
        notes.push(format!("greatest error by magnitude: {}", buckets.join(" · ")));
    }
    if let Some(row) = stats.worst_row {
        notes.push(format!(
            "worst row {:?}: rmse {:.2e}, max {:.2e}, {} of another class",
            row.row, row.rmse, row.max_abs, row.apart
        ));
    }
    Ok(notes)
}
