//! The judge on itself: the reference rounded to the output dtype holds every case, and each
//! deliberate fault is caught by the committed cases under the committed bounds. No MLX.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fmt::Write as _, path::Path};

use mlx_parity::{
    case::{self, Case, Kind},
    compare::Zeros,
    ops::{Bound, Call, Fake, Mutant, Subject, Tolerances, Verdict, judge},
    root::Root,
};

fn cases() -> (Vec<Case>, Tolerances) {
    let root = Root::find(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))).unwrap();
    let tolerances = Tolerances::load(&root.tolerances_file(), "cpu").unwrap();
    (case::load_all(&root.cases()).unwrap(), tolerances)
}

/// Calls of the op cases, whether each is repeated in other layouts, and the names of their checks.
fn calls(cases: &[Case], wanted: impl Fn(&Call, bool) -> bool) -> Vec<(String, Call, bool)> {
    let mut found = Vec::new();
    for case in cases {
        let Kind::Op(op) = &case.kind else { continue };
        let mine = op.calls().into_iter().filter(|call| !op.large && wanted(call, op.quick));
        found.extend(mine.map(|call| (format!("{}/{}", case.id, call.name()), call, op.views)));
    }
    found
}

fn verdict(call: &Call, views: bool, bound: Bound, subject: &dyn Subject) -> Verdict {
    judge(call, views, bound, subject).unwrap_or_else(|error| panic!("{}: {error}", call.name()))
}

#[test]
fn the_reference_itself_holds_every_case() {
    let (cases, tolerances) = cases();
    // Long inputs are for accumulators, which the reference does not have.
    let quick = calls(&cases, |_, quick| quick);
    assert!(quick.len() > 1000, "{} checks", quick.len());
    for (id, call, views) in &quick {
        let bound = tolerances.bound(call).unwrap();
        let found = verdict(call, *views, bound, &Fake::default());
        assert!(found.held, "{id}: {found:?}");
        // Nothing but the one rounding is between it and the reference.
        let within = found.tolerance.unwrap().minimum <= 0.5;
        assert!(within, "{id}");
    }
}

#[derive(Default)]
struct Tally {
    calls: usize,
    caught: usize,
    named: usize,
    misnamed: Vec<String>,
    first: String,
}

fn hunt(mutant: Mutant, cases: &[Case], tolerances: &Tolerances) -> Tally {
    let mut tally = Tally::default();
    let fake = Fake::wrong(mutant);
    for (id, call, views) in calls(cases, |call, quick| quick && mutant.ops().contains(&call.op)) {
        let found = verdict(&call, views, tolerances.bound(&call).unwrap(), &fake);
        tally.calls += 1;
        if found.held {
            continue;
        }
        tally.caught += 1;
        if tally.first.is_empty() {
            tally.first.clone_from(&id);
        }
        match (found.convention, mutant.convention()) {
            (Some(found), Some(wanted)) if found == wanted => tally.named += 1,
            (Some(found), _) => tally.misnamed.push(format!("{id}: {}", found.name())),
            (None, _) => {}
        }
    }
    tally
}

#[test]
fn every_mutant_is_caught_and_the_conventions_are_named() {
    let (cases, tolerances) = cases();
    let mut table = format!(
        "{:<26} {:>6} {:>7} {:>6}  {:<22} {}\n",
        "mutant", "checks", "caught", "named", "convention", "first caught"
    );
    let mut alive = Vec::new();
    for mutant in Mutant::ALL {
        let tally = hunt(mutant, &cases, &tolerances);
        let convention = mutant.convention().map_or("", mlx_parity_oracles::Convention::name);
        let Tally { calls, caught, named, misnamed, first } = &tally;
        writeln!(
            table,
            "{:<26} {calls:>6} {caught:>7} {named:>6}  {convention:<22} {first}",
            mutant.name()
        )
        .unwrap();
        if *caught == 0 || (mutant.convention().is_some() && *named == 0) {
            alive.push(mutant.name());
        }
        assert!(misnamed.is_empty(), "{}: {misnamed:?}\n{table}", mutant.name());
    }
    println!("{table}");
    assert!(alive.is_empty(), "alive or not named: {alive:?}\n{table}");
}

#[test]
fn a_bound_of_zero_units_is_kept_only_by_the_reference_where_it_is_exact() {
    let (cases, _) = cases();
    let bound = Bound { units: 0.0, zeros: Zeros::Signed };
    let sums = calls(&cases, |call, quick| quick && call.op.name() == "sum");
    let held =
        sums.iter().filter(|(_, call, _)| verdict(call, false, bound, &Fake::default()).held);
    let held = held.count();
    assert!(held > 0 && held < sums.len(), "{held} of {}", sums.len());
}
