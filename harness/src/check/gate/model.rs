//! E7 of one model, and the screen of its mutants.

use mlx_parity_kernels::{Candidate, ledger::Evidence};

use super::lanes;
use crate::gate::{GateCase, GateRow, ModelTask, model, mutants::MutantReport};

/// The envelope of a model with the lever pulled.
pub(super) fn weigh(
    case: &GateCase,
    candidate: &'static dyn Candidate,
    task: &ModelTask,
) -> Result<Vec<GateRow>, String> {
    let lanes = lanes::of(task)?;
    let pulled = lanes.pulled(candidate)?;
    let dispatches = pulled.dispatches.get(case.class.as_str()).copied().unwrap_or(0);
    let found = model::weigh(&pulled.positions, &lanes.controls, &lanes.clusters, dispatches);
    let what = format!("{}: {}", task.name, found.what);
    let mut row = GateRow::new(Evidence::Model, found.verdict, what);
    let report = &found.report;
    let decided = report.decided.wilson.map_or(f64::NAN, |interval| interval.low);
    let numbers = [
        ("kl", report.kl.mean),
        ("kl_high", report.excess.high),
        ("control_high", report.again.mean_high),
        ("split_high", report.split.mean_high),
        ("decided_low", decided),
        ("positions", report.positions as f64),
        ("prompts", report.prompts as f64),
        ("screen", found.screen as f64),
        ("dispatches", dispatches as f64),
    ];
    // JSON has no NaN.
    let known = numbers.into_iter().filter(|(_, x)| x.is_finite());
    row.numbers = known.map(|(name, x)| (name.to_owned(), x)).collect();
    Ok(vec![row])
}

/// How many of the first positions each live mutant leaves as they are: what the 56/64 rule would have seen.
pub(super) fn screen(
    case: &GateCase,
    task: &ModelTask,
    reports: &mut [MutantReport],
) -> Result<(), String> {
    let lanes = lanes::of(task)?;
    for report in reports.iter_mut().filter(|report| !report.dead) {
        let lever = format!("{}=mutant:{}", case.kernel, report.name);
        report.screen = Some(model::screen(&lanes.under(&lever, 1)?));
    }
    Ok(())
}
