//! Both paths unwatched: whether each repeats itself.

use super::{
    gap::{Gap, Threshold},
    report::{Outcome, SideName},
    script::Script,
    search::{Options, Stop},
    side::Side,
    walk::{Point, Walked, Watch},
};

/// The first of several unwatched runs that all gave the same logits.
pub(super) fn steady(
    name: SideName,
    side: &mut dyn Side,
    script: &Script,
    options: Options,
) -> Result<Walked, Stop> {
    let first = walk(name, side, script, None)?;
    if !side.computes() {
        return Ok(first);
    }
    let (mut differ, mut earliest) = (0, None);
    for _ in 1..options.repeats {
        let again = walk(name, side, script, None)?;
        if let Some(call) = first_parting(options.threshold, &again, &first)? {
            differ += 1;
            earliest = Some(earliest.map_or(call, |earlier: usize| earlier.min(call)));
        }
    }
    let Some(call) = earliest else { return Ok(first) };
    let seen_at = unsteady(name, side, &script.upto(call), options)?;
    let runs = options.repeats;
    Err(Stop::Outcome(Outcome::NotDeterministic { side: name, runs, differ, call, seen_at }))
}

/// The first call whose logits part.
pub(super) fn first_parting(
    threshold: Threshold,
    got: &Walked,
    want: &Walked,
) -> Result<Option<usize>, Stop> {
    for call in 0..got.calls().min(want.calls()) {
        if threshold.parts(&Gap::of(&got.logits(call)?, &want.logits(call)?)) {
            return Ok(Some(call));
        }
    }
    Ok(None)
}

pub(super) fn walk(
    name: SideName,
    side: &mut dyn Side,
    script: &Script,
    watch: Option<&Watch>,
) -> Result<Walked, Stop> {
    side.walk(script, watch).map_err(|error| Stop::side(name, error))
}

/// The first intermediate, in the order of the model, that differs between watched runs of one path.
fn unsteady(
    name: SideName,
    side: &mut dyn Side,
    script: &Script,
    options: Options,
) -> Result<Option<Point>, Stop> {
    let all = Watch::all([0, script.calls().len() - 1]);
    let first = walk(name, side, script, Some(&all))?;
    let mut known = first.points().len();
    for _ in 1..options.repeats {
        let again = walk(name, side, script, Some(&all))?;
        for (order, point) in first.points()[..known].iter().enumerate() {
            let (Some(got), Some(want)) = (again.view(point)?, first.view(point)?) else {
                continue;
            };
            if options.threshold.parts(&Gap::of(&got, &want)) {
                known = order;
                break;
            }
        }
    }
    Ok(first.points().get(known).cloned())
}
