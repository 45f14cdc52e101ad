//! From the rows of a cell to its entry in the ledger.

use std::collections::BTreeMap;

use mlx_parity_kernels::{
    candidate,
    ledger::{Decision, Entry, Evidence, Finding, Verdict},
};

use super::{
    case::{GateCase, GateRow, Stage},
    model,
    mutants::MutantReport,
    plan::{Plan, Planned},
};
use crate::{
    case::{Case, Kind},
    row::{Outcome, Row},
};

/// A decision about a cell, with what a card shows beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The entry.
    pub entry: Entry,
    /// The replay line of the first evidence that rejects.
    pub replay: Option<String>,
    /// Its mutants.
    pub mutants: Vec<MutantReport>,
    /// The lane `metal-emulated`: its findings, and its mutants; none where it was not run.
    pub emulated: Option<Emulated>,
    /// The numbers behind the findings.
    pub numbers: BTreeMap<String, f64>,
}

/// What emulation of the Metal source showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Emulated {
    /// E0 to E5, and E9 where mutants were run.
    pub findings: Vec<Finding>,
    /// Its mutants.
    pub mutants: Vec<MutantReport>,
}

impl Emulated {
    /// Evidence against the Metal source.
    pub fn rejecting(&self) -> Option<&Finding> {
        self.findings.iter().find(|of| of.verdict == Verdict::Failed)
    }
}

/// Rows by their ids.
struct Rows<'a>(BTreeMap<&'a str, &'a Row>);

impl Rows<'_> {
    /// A row of a case, as a row of the gate whatever became of it.
    fn of(&self, case: &Case, evidence: Evidence) -> GateRow {
        let id = format!("{}/{}", case.id, evidence.code());
        let Some(row) = self.0.get(id.as_str()) else {
            return GateRow::new(evidence, Verdict::Missing, "not run");
        };
        match (&row.gate, &row.outcome) {
            (Some(gate), _) => gate.clone(),
            (None, Outcome::Crashed { how }) => {
                GateRow::new(evidence, Verdict::Failed, format!("crashed: {how}"))
            }
            (None, Outcome::NotRun { message, .. } | Outcome::Error { message }) => {
                GateRow::new(evidence, Verdict::Missing, message.clone())
            }
            (None, _) => GateRow::new(evidence, Verdict::Missing, "a row without its finding"),
        }
    }
}

/// One decision a cell; `record` is the folder of the run. A run that is less than a whole one, for the reason given,
/// promotes nothing.
pub fn fold(plan: &Plan, rows: &[Row], record: &str, partial: Option<&str>) -> Vec<Decided> {
    let rows = Rows(rows.iter().map(|row| (row.id.as_str(), row)).collect());
    plan.cells.iter().map(|cell| one(plan, cell, &rows, record, partial)).collect()
}

fn one(
    plan: &Plan,
    planned: &Planned,
    rows: &Rows<'_>,
    record: &str,
    partial: Option<&str>,
) -> Decided {
    let mut found: Vec<GateRow> =
        Evidence::ALL.iter().map(|kind| gathered(plan, planned, rows, *kind)).collect();
    if let Some(why) = partial {
        found.iter_mut().for_each(|row| weaken(row, why));
    }
    let findings: Vec<Finding> = Evidence::ALL
        .into_iter()
        .zip(&found)
        .map(|(kind, row)| Finding::new(kind, row.verdict(), row.what.clone()))
        .collect();
    let failed = Evidence::ALL.into_iter().zip(&found);
    let replay = failed
        .filter(|(kind, row)| kind.rejects() && row.verdict() == Verdict::Failed)
        .find_map(|(_, row)| row.replay.clone());
    let numbers = found.iter().flat_map(|row| {
        row.numbers.iter().map(|(name, x)| (format!("{} {name}", row.evidence), *x))
    });
    Decided {
        numbers: numbers.collect(),
        replay,
        mutants: found[Evidence::Power as usize].mutants.clone(),
        emulated: emulated(planned, rows),
        entry: Entry::new(planned.cell.clone(), findings, record.to_owned()),
    }
}

/// What was tried on less than everything tells less.
fn weaken(row: &mut GateRow, why: &str) {
    if row.verdict() == Verdict::Held && matches!(row.evidence.as_str(), "E2" | "E7" | "E9" | "E10")
    {
        Verdict::Weak.word().clone_into(&mut row.verdict);
        row.what += &format!(" ({why})");
    }
}

fn gathered(plan: &Plan, planned: &Planned, rows: &Rows<'_>, kind: Evidence) -> GateRow {
    match kind {
        Evidence::Model => models(planned, rows),
        Evidence::Vjp => vjp(plan, planned, rows),
        Evidence::Engaged => engaged(planned, rows),
        Evidence::Power => sole(planned, rows, kind, |stage| matches!(stage, Stage::Power { .. })),
        Evidence::Speed => sole(planned, rows, kind, |stage| *stage == Stage::Speed),
        _ => sole(planned, rows, kind, |stage| *stage == Stage::Trials),
    }
}

fn staged<'p>(
    planned: &'p Planned,
    wanted: impl Fn(&Stage) -> bool + 'p,
) -> impl Iterator<Item = (&'p Case, &'p GateCase)> {
    planned.cases.iter().filter_map(move |case| match &case.kind {
        Kind::Gate(of) if wanted(&of.stage) => Some((case, of)),
        _ => None,
    })
}

fn sole(
    planned: &Planned,
    rows: &Rows<'_>,
    kind: Evidence,
    wanted: impl Fn(&Stage) -> bool,
) -> GateRow {
    match staged(planned, wanted).next() {
        Some((case, _)) => rows.of(case, kind),
        None => GateRow::new(kind, Verdict::Missing, "not run"),
    }
}

/// The counter of trials, and the calls that models made.
fn engaged(planned: &Planned, rows: &Rows<'_>) -> GateRow {
    let mut row = sole(planned, rows, Evidence::Engaged, |stage| *stage == Stage::Trials);
    let calls: f64 = staged(planned, |stage| matches!(stage, Stage::Model(_)))
        .filter_map(|(case, _)| rows.of(case, Evidence::Model).numbers.get("dispatches").copied())
        .sum();
    if row.verdict() == Verdict::Held && calls > 0.0 {
        row.what = format!(
            "{} dispatches in models; {}",
            crate::report::thousands(calls as usize),
            row.what
        );
    }
    row
}

/// All models of a cell in one.
fn models(planned: &Planned, rows: &Rows<'_>) -> GateRow {
    let asked = staged(planned, |stage| matches!(stage, Stage::Model(_)));
    let found: Vec<GateRow> = asked.map(|(case, _)| rows.of(case, Evidence::Model)).collect();
    let row = |verdict, what: String| GateRow::new(Evidence::Model, verdict, what);
    if found.is_empty() {
        let why = planned.absent.join("; ");
        let why =
            if why.is_empty() { "goldens/gate.toml names no model for it".to_owned() } else { why };
        return row(Verdict::Missing, why);
    }
    for verdict in [Verdict::Failed, Verdict::Missing, Verdict::Weak] {
        let bad: Vec<_> = found.iter().filter(|row| row.verdict() == verdict).collect();
        let enough = found.len() - bad.len() >= model::MODELS;
        if !bad.is_empty() && (verdict != Verdict::Missing || !enough) {
            let what = bad.iter().map(|row| row.what.as_str()).collect::<Vec<_>>().join("; ");
            return GateRow { numbers: bad[0].numbers.clone(), ..row(verdict, what) };
        }
    }
    let held: Vec<_> = found.iter().filter(|row| row.verdict() == Verdict::Held).collect();
    if held.len() < model::MODELS {
        let what = format!("{}; wanted {} models", joined(&held), model::MODELS);
        return row(Verdict::Weak, what);
    }
    let worst = worst(&held);
    let of = |name: &str| worst.get(name).copied().unwrap_or(f64::NAN);
    let nats = |x: f64| if x == 0.0 { "0".to_owned() } else { format!("{x:.1e}") };
    let what = format!(
        "{}: KL ≤ {} (95 %), control {}; decided agreement ≥ {:.3}; {}/64",
        names(&held).join(", "),
        nats(of("kl_high")),
        nats(of("control_high")),
        of("decided_low"),
        of("screen")
    );
    GateRow { numbers: worst, ..row(Verdict::Held, what) }
}

fn joined(rows: &[&GateRow]) -> String {
    rows.iter().map(|row| row.what.as_str()).collect::<Vec<_>>().join("; ")
}

fn names(rows: &[&GateRow]) -> Vec<String> {
    let name = |row: &&GateRow| row.what.split(':').next().unwrap_or_default().to_owned();
    rows.iter().map(name).collect()
}

/// The least favourable of each number.
fn worst(rows: &[&GateRow]) -> BTreeMap<String, f64> {
    let mut worst: BTreeMap<String, f64> = BTreeMap::new();
    for (name, x) in rows.iter().flat_map(|row| &row.numbers) {
        let least = matches!(
            name.as_str(),
            "decided_low" | "positions" | "prompts" | "screen" | "dispatches"
        );
        let known = worst.entry(name.clone()).or_insert(*x);
        *known = if least { known.min(*x) } else { known.max(*x) };
    }
    worst
}

/// A forward's E8 is what its backward's own cells show of the same dtype.
fn vjp(plan: &Plan, planned: &Planned, rows: &Rows<'_>) -> GateRow {
    let row = |verdict, what: &str| GateRow::new(Evidence::Vjp, verdict, what);
    let Some(candidate) = candidate(&planned.cell.kernel) else {
        return row(Verdict::Missing, "no such kernel");
    };
    let Some(backward) = candidate.spec().backward else {
        return row(Verdict::NotApplicable, "no backward");
    };
    let cells = plan.cells.iter().chain(&plan.backwards);
    let mine = cells.filter(|of| of.cell.kernel == backward && of.cell.dtype == planned.cell.dtype);
    let mut seen = 0;
    for of in mine {
        for kind in Evidence::ALL.into_iter().take(6) {
            let found = sole(of, rows, kind, |stage| *stage == Stage::Trials);
            let told = format!("{backward}/{}: {} {}", of.cell.class, kind.code(), found.what);
            match found.verdict() {
                Verdict::Held | Verdict::NotApplicable => {}
                verdict => return GateRow { replay: found.replay, ..row(verdict, &told) },
            }
        }
        seen += 1;
    }
    if seen == 0 {
        return row(Verdict::Missing, &format!("{backward} has no cell in this dtype"));
    }
    row(Verdict::Held, &format!("{backward}: E0 to E5 held in {seen} classes"))
}

fn emulated(planned: &Planned, rows: &Rows<'_>) -> Option<Emulated> {
    let (case, of) = staged(planned, |stage| matches!(stage, Stage::Emulated { .. })).next()?;
    let found: Vec<_> = of.evidence().into_iter().map(|kind| (kind, rows.of(case, kind))).collect();
    let mutants = found.iter().flat_map(|(_, row)| row.mutants.clone()).collect();
    let finding =
        |(kind, row): &(Evidence, GateRow)| Finding::new(*kind, row.verdict(), row.what.clone());
    Some(Emulated { findings: found.iter().map(finding).collect(), mutants })
}

/// How many cells were decided how.
pub fn tally(decided: &[Decided]) -> [usize; 3] {
    let of = |wanted| decided.iter().filter(|one| one.entry.decision == wanted).count();
    [of(Decision::Promote), of(Decision::Hold), of(Decision::Reject)]
}
