//! What one run of a planted kernel gave away.

use std::collections::BTreeSet;

use mlx_parity_msl_emu::{EmuError, Fault, FaultKind, Outcome};

use super::Case;
use super::bound::judge;
use super::plants::{Plant, Sign};

/// What was seen of a plant.
pub struct Sighting {
    sign: Sign,
    line: Option<u32>,
    /// Kind, lines and detector of each fault.
    reports: Vec<(FaultKind, Vec<u32>, String)>,
    /// What is wrong with an output.
    wrong: Option<String>,
    /// Why there was no outcome.
    error: Option<String>,
}

/// Reads an outcome.
pub fn sighting(
    plant: &Plant,
    body: &str,
    case: &Case,
    outcome: &Result<Outcome, EmuError>,
) -> Sighting {
    let line = (!plant.at.is_empty()).then(|| plant.line(body));
    let mut seen =
        Sighting { sign: plant.sign, line, reports: Vec::new(), wrong: None, error: None };
    match outcome {
        Err(error) => seen.error = Some(error.to_string()),
        Ok(outcome) => {
            seen.reports = outcome.faults.iter().map(report).collect();
            seen.wrong = outcome.orders.iter().find_map(|(seed, outputs)| {
                let mut pairs = outputs.iter().zip(&case.expected);
                let wrong = pairs.find_map(|(found, expected)| judge(found, expected).err())?;
                Some(format!("order {seed}: {wrong}"))
            });
        }
    }
    seen
}

fn report(fault: &Fault) -> (FaultKind, Vec<u32>, String) {
    let places = [&fault.place, &fault.other_place];
    let lines = places.into_iter().flatten().map(|place| place.line).collect();
    (fault.kind, lines, fault.detector.clone())
}

impl Sighting {
    /// Whether the plant was caught as it should be.
    pub fn caught(&self) -> bool {
        match self.sign {
            Sign::Value => self.wrong.is_some(),
            _ => !self.detectors().is_empty(),
        }
    }

    /// Detectors that reported the right kind at the right line.
    pub fn detectors(&self) -> BTreeSet<&str> {
        let fits = |kind: FaultKind, lines: &[u32]| match self.sign {
            Sign::Report(kinds) => {
                kinds.contains(&kind) && self.line.is_none_or(|line| lines.contains(&line))
            }
            Sign::Nowhere(wanted) => kind == wanted,
            Sign::Value => false,
        };
        let fitting = self.reports.iter().filter(|(kind, lines, _)| fits(*kind, lines));
        fitting.map(|(.., detector)| detector.as_str()).collect()
    }

    /// Whether an output differs from ref64 (or is missing, where it had to be there).
    pub fn is_wrong(&self) -> bool {
        self.wrong.is_some()
    }

    /// Everything seen.
    pub fn describe(&self) -> String {
        format!(
            "wanted {:?} at line {:?}; reports {:?}; value {:?}; error {:?}",
            self.sign, self.line, self.reports, self.wrong, self.error
        )
    }
}
