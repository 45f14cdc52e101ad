//! The meta matrix for people: a block for each kind of cache, a line for each model type, a column for
//! each way.

use std::collections::{BTreeMap, HashMap};

use super::{columns, thousands};
use crate::{
    meta::{CacheKind, Cell, Listed, Matrix, matrix},
    row::{Outcome, Row, Tier},
};

/// What became of the checks of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    checks: usize,
    held: usize,
}

/// Reasons of empty cells, each with its mark.
#[derive(Default)]
struct Reasons(Vec<String>);

impl Reasons {
    /// `-a`, `-b`, …
    fn mark(&mut self, reason: &str) -> String {
        let at = self.0.iter().position(|known| known == reason).unwrap_or_else(|| {
            self.0.push(reason.to_owned());
            self.0.len() - 1
        });
        let letter = char::from(b'a' + (at % 26) as u8);
        format!("–{}", letter.to_string().repeat(at / 26 + 1))
    }
}

/// The matrix with the counts of a run; empty where the run has no check of it.
pub fn matrix(matrix: &Matrix, rows: &[Row]) -> String {
    let prefix = format!("{}/{}/", Tier::Meta.name(), matrix::NAME);
    let mine = rows.iter().filter(|row| row.id.starts_with(&prefix));
    let rows: HashMap<&str, &Row> = mine.map(|row| (row.id.as_str(), row)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut reasons = Reasons::default();
    let (mut blocks, mut total, mut empty) = (Vec::new(), Tally::default(), 0);
    for cache in &matrix.caches {
        blocks.push(block(matrix, cache, &rows, &mut reasons, &mut total, &mut empty));
    }
    let marks: Vec<String> = reasons.0.clone();
    let notes = marks.iter().map(|reason| format!("{}  {reason}", reasons.mark(reason)));
    blocks.push(notes.collect::<Vec<_>>().join("\n"));
    blocks.push(format!(
        "matrix   {} of {} checks held; {} cells without a check, each with its reason; a number is \
         checks held, n/m held of all, · not run",
        thousands(total.held),
        thousands(total.checks),
        thousands(empty),
    ));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n\n")
}

fn block(
    matrix: &Matrix,
    cache: &CacheKind,
    rows: &HashMap<&str, &Row>,
    reasons: &mut Reasons,
    total: &mut Tally,
    empty: &mut usize,
) -> String {
    let mut by_type: BTreeMap<&str, Vec<&Listed>> = BTreeMap::new();
    for model in &matrix.models {
        by_type.entry(&model.model_type).or_default().push(model);
    }
    let mut head = vec!["model type".to_owned(), "models".to_owned()];
    head.extend(matrix.columns.iter().map(|column| column.name.clone()));
    let mut cells = vec![head];
    for (model_type, models) in by_type {
        let mut line = vec![model_type.to_owned(), models.len().to_string()];
        for column in &matrix.columns {
            let (mut tally, mut marks, mut known) = (Tally::default(), Vec::new(), 0);
            for model in &models {
                match matrix.cell(model, cache, column) {
                    Cell::Empty(reason) => {
                        *empty += 1;
                        let mark = reasons.mark(&reason);
                        if !marks.contains(&mark) {
                            marks.push(mark);
                        }
                    }
                    Cell::Checks(checks) => {
                        known += checks.len();
                        let ran = checks.iter().filter_map(|id| rows.get(id.as_str()));
                        ran.for_each(|row| tally.add(row));
                    }
                }
            }
            total.checks += tally.checks;
            total.held += tally.held;
            let count = (known > 0).then(|| tally.shown(known));
            line.push(count.into_iter().chain(marks).collect::<Vec<_>>().join(" "));
        }
        cells.push(line);
    }
    let right: Vec<usize> = (1..cells[0].len()).collect();
    format!("meta · {}\n{}", cache.title, columns(&cells, &right).join("\n"))
}

impl Tally {
    fn add(&mut self, row: &Row) {
        self.checks += 1;
        self.held += usize::from(row.outcome == Outcome::Held);
    }

    /// Of `known` checks.
    fn shown(self, known: usize) -> String {
        match self {
            Self { checks: 0, .. } => "·".to_owned(),
            Self { held, .. } if held == known => thousands(held),
            Self { held, checks } if checks == known => format!("{held}/{checks}"),
            Self { held, checks } => format!("{held}/{checks} ·{}", known - checks),
        }
    }
}
