//! Decisions as people read them.

use std::fmt::Write as _;

use mlx_parity_kernels::ledger::{Decision, Evidence, Finding, Verdict};

use super::{
    fold::{Decided, Emulated, tally},
    mutants::{MutantReport, killers},
};
use crate::report::columns;

/// The decision card of a cell: what held, what did not with its worst number and a replay line, what is missing.
pub fn card(decided: &Decided) -> String {
    let entry = &decided.entry;
    let cell = &entry.cell;
    let place = &cell.place;
    let mut text = format!(
        "{} · {}-{} · {} · {} · source {}\n\n",
        cell.kernel,
        place.backend,
        place.chip,
        cell.dtype,
        cell.class,
        &cell.digest[..8]
    );
    for finding in entry.evidence.iter().filter(|of| of.verdict != Verdict::NotApplicable) {
        line(&mut text, finding);
    }
    if let Some(emulated) = &decided.emulated {
        let _ = writeln!(text, "  metal-emulated {}", summary(emulated));
    }
    text.push('\n');
    verdict(&mut text, decided);
    text
}

/// `  E0 sanity      held     24 shapes, guards intact`
fn line(text: &mut String, finding: &Finding) {
    let Finding { evidence, verdict, what } = finding;
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "  {:<3} {:<9} {:<8} {what}",
        evidence.code(),
        evidence.word(),
        verdict.word()
    );
}

fn summary(emulated: &Emulated) -> String {
    let codes = |verdict: Verdict| {
        let of = emulated.findings.iter().filter(|finding| finding.verdict == verdict);
        of.map(|finding| finding.evidence.code()).collect::<Vec<_>>().join(" ")
    };
    match emulated.rejecting() {
        Some(Finding { evidence, what, .. }) => format!("{} failed: {what}", evidence.code()),
        None if codes(Verdict::Held).is_empty() => {
            emulated.findings.first().map(|of| of.what.clone()).unwrap_or_default()
        }
        None => format!("{} held; it can reject, never promote", codes(Verdict::Held)),
    }
}

fn verdict(text: &mut String, decided: &Decided) {
    let entry = &decided.entry;
    let elsewhere = elsewhere(decided);
    let _ = match entry.decision {
        Decision::Promote => writeln!(text, "  PROMOTE  for this cell.  {elsewhere}"),
        Decision::Hold => {
            let reasons: Vec<String> = entry.reasons().map(reason).collect();
            writeln!(text, "  HOLD     {}.  {elsewhere}", reasons.join("; "))
        }
        Decision::Reject => {
            let wrong = |of: &&Finding| of.verdict == Verdict::Failed && of.evidence.rejects();
            let first = entry
                .evidence
                .iter()
                .find(wrong)
                .map(|of| format!("{} {}", of.evidence.code(), of.what));
            writeln!(text, "  REJECT   {}", first.unwrap_or_default())
        }
    };
    if let (Decision::Reject, Some(replay)) = (entry.decision, &decided.replay) {
        let _ = writeln!(text, "  replay   {replay}");
    }
}

/// `E7 is missing: … → add one to goldens/gate.toml`
fn reason(finding: &Finding) -> String {
    let Finding { evidence, verdict, .. } = finding;
    let state = match verdict {
        Verdict::Failed => "failed",
        Verdict::Weak => "does not tell",
        _ => "is missing",
    };
    let how = match (evidence, verdict) {
        (Evidence::Model, Verdict::Missing) => {
            ": name models in goldens/gate.toml, cargo xtask setup"
        }
        (Evidence::Vjp, Verdict::Missing) => ": gate its backward",
        (Evidence::Power, Verdict::Missing) => ": gate in a build with debug assertions",
        (Evidence::Speed, Verdict::Weak) => ": gate on a quiet machine",
        _ => "",
    };
    format!("{} {} {state}{how}", evidence.code(), evidence.word())
}

/// What is known of other backends.
fn elsewhere(decided: &Decided) -> String {
    let backend = decided.entry.cell.place.backend.as_str();
    let metal = match &decided.emulated {
        _ if backend == "metal" => None,
        Some(emulated) if emulated.rejecting().is_some() => Some("metal: REJECT, in emulation."),
        _ => Some("metal: HOLD, no evidence on a Metal device."),
    };
    let cuda = (backend != "cuda").then_some("cuda: HOLD, never run.");
    metal.into_iter().chain(cuda).collect::<Vec<_>>().join("  ")
}

/// One line a cell, and the tally.
pub fn table(decided: &[Decided]) -> String {
    let heads = ["kernel", "dtype", "class", "decision", "why"].map(str::to_owned).to_vec();
    let mut cells = vec![heads];
    for Decided { entry, .. } in decided {
        let why: Vec<_> = entry
            .reasons()
            .map(|of| format!("{} {}", of.evidence.code(), of.verdict.word()))
            .collect();
        cells.push(vec![
            entry.cell.kernel.clone(),
            entry.cell.dtype.name().to_owned(),
            entry.cell.class.clone(),
            entry.decision.word().to_owned(),
            why.join(", "),
        ]);
    }
    let [promoted, held, rejected] = tally(decided);
    let count =
        format!("{} cells: {promoted} promote · {held} hold · {rejected} reject", decided.len());
    format!("{}\n\n{count}", columns(&cells, &[]).join("\n"))
}

/// Mutants of every cell: what rejects each, the rate, and what the 56/64 rule alone would have passed.
pub fn mutants(decided: &[Decided]) -> String {
    let heads = ["kernel", "lane", "dtype", "class", "mutant", "rejected by", "56/64 saw"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    let mut totals = Totals::default();
    for one in decided {
        let backend = one.entry.cell.place.backend.clone();
        add(&mut cells, &mut totals, one, &backend, &one.mutants);
        if let Some(emulated) = &one.emulated {
            add(&mut cells, &mut totals, one, "metal-emulated", &emulated.mutants);
        }
    }
    format!("{}\n\n{}", columns(&cells, &[]).join("\n"), totals.told())
}

#[derive(Default)]
struct Totals {
    live: usize,
    dead: usize,
    rejected: usize,
    screened: usize,
    passed: usize,
}

fn add(
    cells: &mut Vec<Vec<String>>,
    totals: &mut Totals,
    one: &Decided,
    lane: &str,
    reports: &[MutantReport],
) {
    let cell = &one.entry.cell;
    for report in reports {
        totals.count(report);
        cells.push(vec![
            cell.kernel.clone(),
            lane.to_owned(),
            cell.dtype.name().to_owned(),
            cell.class.clone(),
            report.name.clone(),
            killers(report),
            report.screen.map_or_else(|| "–".to_owned(), |agree| format!("{agree}/64")),
        ]);
    }
}

impl Totals {
    fn count(&mut self, report: &MutantReport) {
        self.dead += usize::from(report.dead);
        self.live += usize::from(!report.dead);
        self.rejected += usize::from(!report.dead && !report.survives());
        if let (false, Some(agree)) = (report.dead, report.screen) {
            self.screened += 1;
            self.passed += usize::from(agree >= super::model::SCREEN);
        }
    }

    fn told(&self) -> String {
        let Self { live, dead, rejected, screened, passed } = self;
        let rate = if *live == 0 { 0.0 } else { 100.0 * *rejected as f64 / *live as f64 };
        let mut text =
            format!("{rejected} of {live} live mutants rejected ({rate:.1} %), {dead} dead");
        if *screened > 0 {
            text +=
                &format!("; 56/64 alone would have passed {passed} of {screened} run on a model");
        }
        text
    }
}

/// Every number of a cell.
pub fn explain(decided: &Decided) -> String {
    let mut text = card(decided);
    let mut cells = vec![vec!["number".to_owned(), "value".to_owned()]];
    cells.extend(decided.numbers.iter().map(|(name, x)| vec![name.clone(), format!("{x:.6e}")]));
    let _ = writeln!(text, "\n{}", columns(&cells, &[1]).join("\n"));
    for report in &decided.mutants {
        let first = report.first.as_deref().unwrap_or("");
        let _ =
            writeln!(text, "  mutant {:<24} {:<24} {}", report.name, killers(report), report.what);
        if !first.is_empty() {
            let _ = writeln!(text, "    {first}");
        }
    }
    text
}
