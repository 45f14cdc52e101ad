//! One trial or probe again, by its name.

use mlx_parity_kernels::{
    Candidate, Claim, Expected, Path, ShapeClass, Trial,
    ledger::{Evidence, Verdict},
};
use mlx_parity_tensor::Dtype;

use super::{
    bank::{self, Bank, Composed, Known, Tried},
    case::GateRow,
    evidence::short,
    weigh::{Scale, Weighed, told},
};

/// The evidence of one trial, E0 to E4: what does not apply to it is missing.
///
/// # Errors
/// Where there is no such trial or mutant, or no baseline for it.
pub fn replayed(
    candidate: &dyn Candidate,
    composed: &dyn Composed,
    class: &ShapeClass,
    dtype: Dtype,
    name: &str,
    mutant: Option<&str>,
) -> Result<Vec<GateRow>, String> {
    let mutant = mutant.map(|name| known_mutant(candidate, name)).transpose()?;
    let mut bank =
        Bank { class: *class, dtype, trials: Vec::new(), twins: Vec::new(), probes: Vec::new() };
    for (trial, expected) in bank::named(candidate, class, dtype, name)? {
        put(&mut bank, candidate, composed, trial, expected)?;
    }
    let scale = Scale { mutant, paths: super::weigh::paths(), ..Scale::new(candidate, &bank) };
    let scale = if mutant.is_some() { Scale { paths: vec![Path::Auto], ..scale } } else { scale };
    let weighed = scale.weigh();
    Ok(rows(candidate, &weighed))
}

fn known_mutant(candidate: &dyn Candidate, name: &str) -> Result<&'static str, String> {
    let spec = candidate.spec();
    let found = spec.mutants.iter().find(|mutant| mutant.host && mutant.name == name);
    found.map(|mutant| mutant.name).ok_or_else(|| {
        let known: Vec<_> = spec.mutants.iter().filter(|m| m.host).map(|m| m.name).collect();
        format!("{} has no host mutant `{name}`, wanted one of {}", spec.id, known.join(", "))
    })
}

fn put(
    bank: &mut Bank,
    candidate: &dyn Candidate,
    composed: &dyn Composed,
    trial: Trial,
    expected: Expected,
) -> Result<(), String> {
    match expected {
        Expected::SameAs(other) => bank.probes.push(Tried::Same(trial, *other)),
        Expected::Finite => bank.probes.push(Tried::Finite(trial)),
        Expected::Reference => {
            let known = Known::new(candidate, composed, trial)?;
            if bank.dtype == Dtype::F32 {
                bank.twins.push((known.trial.clone(), known.exact.clone()));
            }
            bank.probes.push(Tried::Near(known.clone()));
            bank.trials.push(known);
        }
    }
    Ok(())
}

fn rows(candidate: &dyn Candidate, weighed: &Weighed) -> Vec<GateRow> {
    let exact = candidate.spec().claim == Claim::Exact;
    let asked = Evidence::ALL.into_iter().zip(&weighed.tallies).take(5);
    asked
        .map(|(evidence, tally)| {
            let (verdict, what) = told(evidence, tally, candidate);
            // A sole probe has no error of its own to compare, and a half trial no twin.
            let idle = tally.count == 0 && (exact || evidence != Evidence::Exactness);
            let verdict = if idle { Verdict::NotApplicable } else { verdict };
            let mut row = GateRow::new(evidence, verdict, what);
            row.numbers = tally.worst.iter().map(|(name, x)| ((*name).to_owned(), *x)).collect();
            if let Some(bias) = tally.worst.get("bias").filter(|_| verdict == Verdict::Failed) {
                row.what += &format!("; bias {} σ", short(*bias));
            }
            row
        })
        .collect()
}
