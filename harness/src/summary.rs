//! Counts over rows, as tables and summary lines show them.

use crate::{
    compare::ToleranceReport,
    row::{Outcome, Row, Tier},
};

/// Rows of one subject in one format.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Tier, subject (with its composition, where it has one) and dtype.
    pub key: Option<(Tier, String, String)>,
    /// Counts.
    pub counts: Counts,
    /// The row that is worst, in words.
    pub worst: Option<String>,
}

/// How many checks ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All checks.
    pub checks: usize,
    /// Within their bounds.
    pub held: usize,
    /// Outside, but on file.
    pub expected: usize,
    /// Outside, failed, or passed against expectation.
    pub failed: usize,
    /// The worker died.
    pub crashed: usize,
    /// Not run.
    pub not_run: usize,
}

impl Counts {
    fn add(&mut self, row: &Row) {
        self.checks += 1;
        match row.outcome {
            Outcome::Held => self.held += 1,
            Outcome::ExpectedFailure { .. } => self.expected += 1,
            Outcome::Differ | Outcome::Error { .. } | Outcome::UnexpectedPass { .. } => {
                self.failed += 1;
            }
            Outcome::Crashed { .. } => self.crashed += 1,
            Outcome::NotRun { .. } => self.not_run += 1,
        }
    }

    /// Counts over rows.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut counts = Self::default();
        rows.into_iter().for_each(|row| counts.add(row));
        counts
    }
}

fn key(row: &Row) -> (Tier, String, String) {
    let composition = row.composition.iter().map(|named| format!(" · {named}"));
    let subject = std::iter::once(row.subject.clone()).chain(composition).collect();
    (row.tier, subject, row.dtype.clone())
}

/// Rows by tier, subject, composition and dtype, in the order they first appear.
pub fn groups(rows: &[Row]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let key = key(row);
        let at = groups.iter().position(|group| group.key.as_ref() == Some(&key));
        let at = at.unwrap_or_else(|| {
            groups.push(Group { key: Some(key), ..Group::default() });
            groups.len() - 1
        });
        groups[at].counts.add(row);
    }
    for group in &mut groups {
        let mine = |row: &&Row| group.key.as_ref() == Some(&key(row));
        group.worst = worst(rows.iter().filter(mine));
    }
    groups
}

/// The gravest row in a few words; `bit-exact` when all held.
fn worst<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let row = rows.max_by_key(|row| gravity(row))?;
    Some(match &row.outcome {
        Outcome::Held if let Some(report) = &row.gradient => report.words(),
        Outcome::Held => match (&row.envelope, &row.tolerance) {
            (Some(report), _) => report.to_string(),
            (None, Some(report)) => within(report),
            (None, None) => "bit-exact".to_owned(),
        },
        Outcome::ExpectedFailure { upstream, fault, .. } => {
            format!("{}  (expected: {fault}, {upstream})", deviation(row))
        }
        Outcome::Differ => format!("{} at {}", deviation(row), short(row)),
        Outcome::UnexpectedPass { .. } => format!("passed against expectation: {}", short(row)),
        Outcome::Crashed { how } => format!("crashed: {}", first_line(how)),
        Outcome::Error { message } | Outcome::NotRun { message, .. } => first_line(message),
    })
}

/// `0.62 of 4 ulp`, or `exact`.
fn within(report: &ToleranceReport) -> String {
    if report.minimum == 0.0 {
        return "exact".to_owned();
    }
    format!("{:.2} of {} ulp", report.minimum, report.tolerance)
}

/// Kind of outcome, then how far off, in thousandths of a unit for ops.
fn gravity(row: &Row) -> (u8, u64) {
    let units = row.tolerance.as_ref().map(|report| match report.apart {
        0 => (report.minimum * 1e3) as u64,
        _ => u64::MAX,
    });
    let bits = row.report.as_ref().and_then(|report| report.max_ulp);
    // Nats have no ulp; all that counts here is which of several is the largest.
    let nats = row.envelope.as_ref().map(|report| (report.kl.mean * 1e12) as u64);
    // Thousandths of the bound.
    let slope = row.gradient.as_ref().map(|report| (report.ratio() * 1e3) as u64);
    let ulp = units.or(bits).or(nats).or(slope).unwrap_or(0);
    match row.outcome {
        Outcome::Held => (0, ulp),
        Outcome::NotRun { .. } => (1, 0),
        Outcome::ExpectedFailure { .. } => (2, ulp),
        Outcome::UnexpectedPass { .. } => (3, 0),
        Outcome::Differ => (4, ulp),
        Outcome::Error { .. } => (5, 0),
        Outcome::Crashed { .. } => (6, 0),
    }
}

fn deviation(row: &Row) -> String {
    if let Some(report) = &row.envelope {
        return report.to_string();
    }
    if let Some(report) = &row.gradient {
        return report.words();
    }
    if let Some(report) = row.tolerance.as_ref().filter(|report| !report.held) {
        return match report.apart {
            0 => format!("{:.1} of {} ulp", report.minimum, report.tolerance),
            apart => format!("{apart} of another class"),
        };
    }
    match row.report.as_ref().and_then(|report| report.max_ulp) {
        Some(ulp) => format!("{ulp} ulp"),
        None => "differs".to_owned(),
    }
}

fn short(row: &Row) -> &str {
    row.id.strip_prefix(&row.case).unwrap_or(&row.id).trim_start_matches('/')
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
