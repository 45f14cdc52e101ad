//! E9: wrong variants of a kernel, and which evidence rejects them.

use mlx_parity_kernels::{
    Candidate, How, Mutant,
    ledger::{Evidence, Verdict},
};
use mlx_parity_tensor::HostTensor;
use serde::{Deserialize, Serialize};

use super::{
    bank::Bank,
    weigh::{Scale, Weighed},
};
use crate::compare::bit_exact;

/// Fewest live mutants that show power.
const FEWEST: usize = 4;

/// What became of one mutant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MutantReport {
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub what: String,
    /// It changes no bit of any trial or probe of the cell.
    pub dead: bool,
    /// Codes of the evidence that rejects it.
    pub killed_by: Vec<String>,
    /// The first trial that shows it, and how.
    pub first: Option<String>,
    /// Agreement with the composed path over 64 positions of a model, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<u64>,
}

impl MutantReport {
    /// Of what a mutant's trials showed, beside the kernel as it is meant.
    pub(super) fn new(mutant: &Mutant, weighed: &Weighed, clean: &Weighed) -> Self {
        let killed_by: Vec<String> =
            weighed.rejecting().map(|(evidence, _)| evidence.code().to_owned()).collect();
        let first = weighed.rejecting().next();
        Self {
            name: mutant.name.to_owned(),
            what: mutant.what.to_owned(),
            dead: killed_by.is_empty() && same(&weighed.seen, &clean.seen),
            killed_by,
            first: first.map(|(_, breach)| format!("{}: {}", breach.trial, breach.what)),
            screen: None,
        }
    }

    /// Whether it lives and nothing rejects it.
    pub fn survives(&self) -> bool {
        !self.dead && self.killed_by.is_empty()
    }
}

/// Every host mutant of a candidate on a bank; `clean` is the kernel as it is meant, on its default instructions.
pub fn all(candidate: &dyn Candidate, bank: &Bank, clean: &Weighed) -> Vec<MutantReport> {
    let mutants = candidate.spec().mutants.iter().filter(|mutant| mutant.host);
    mutants.map(|mutant| one(candidate, bank, clean, mutant)).collect()
}

fn one(candidate: &dyn Candidate, bank: &Bank, clean: &Weighed, mutant: &Mutant) -> MutantReport {
    MutantReport::new(mutant, &Scale::of_mutant(candidate, bank, mutant.name).weigh(), clean)
}

/// Whether two kernels gave the same bits throughout.
fn same(a: &[Option<Vec<HostTensor>>], b: &[Option<Vec<HostTensor>>]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Some(a), Some(b)) => {
                a.len() == b.len()
                    && a.iter().zip(b).all(|(a, b)| bit_exact(&a.view(), &b.view()).is_exact())
            }
            (None, None) => true,
            _ => false,
        })
}

/// The finding of a cell's mutants.
pub fn finding(reports: &[MutantReport]) -> (Verdict, String) {
    if !How::MUTANTS {
        let what = "this build has no mutants: gate with debug assertions".to_owned();
        return (Verdict::Missing, what);
    }
    let names = |of: &dyn Fn(&&MutantReport) -> bool| {
        reports.iter().filter(of).map(|report| report.name.as_str()).collect::<Vec<_>>()
    };
    let dead = names(&|report| report.dead);
    let survivors = names(&|report| report.survives());
    let live = reports.len() - dead.len();
    let mut what = format!("{} of {live} live mutants rejected", live - survivors.len());
    if !dead.is_empty() {
        what += &format!(" ({} dead: {})", dead.len(), dead.join(", "));
    }
    let screened: Vec<_> = reports.iter().filter(|r| !r.dead).filter_map(|r| r.screen).collect();
    if !screened.is_empty() {
        let passed = screened.iter().filter(|agree| **agree >= super::model::SCREEN).count();
        what += &format!("; 56/64 alone would have passed {passed} of {}", screened.len());
    }
    if !survivors.is_empty() {
        return (Verdict::Failed, format!("{what}; not rejected: {}", survivors.join(", ")));
    }
    if live < FEWEST {
        return (Verdict::Weak, format!("{what}; wanted {FEWEST} live ones"));
    }
    (Verdict::Held, what)
}

/// Which evidence would reject a mutant's kernel first, in words for a table.
pub fn killers(report: &MutantReport) -> String {
    match (report.dead, report.killed_by.is_empty()) {
        (true, _) => "dead: it changes no bit".to_owned(),
        (false, true) => "NOT REJECTED".to_owned(),
        (false, false) => {
            let in_order = Evidence::ALL.iter().map(|evidence| evidence.code());
            in_order
                .filter(|code| report.killed_by.iter().any(|killer| killer == code))
                .collect::<Vec<_>>()
                .join(" ")
        }
    }
}
