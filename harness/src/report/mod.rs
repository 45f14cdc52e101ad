//! Rows for people and for other tools. Formats read rows; none of them decides anything.

mod human;
mod junit;
mod markdown;
mod matrix;

use std::fmt::Write as _;

pub use self::{
    human::{expected, failure, failures, header, table, tally},
    junit::junit,
    markdown::markdown,
    matrix::matrix,
};
use crate::fingerprint::Fingerprint;

/// What a report says of the run besides its rows.
#[derive(Debug, Clone)]
pub struct Context {
    /// Where the engine computed.
    pub fingerprint: Fingerprint,
    /// The oracle and its version, or why there is none.
    pub oracle: String,
    /// Worker processes.
    pub workers: usize,
    /// Wall time in seconds.
    pub seconds: f64,
    /// What is out of date in the tables of tolerances.
    pub complaints: Vec<String>,
    /// Where the run is recorded, as seen from the project.
    pub record: String,
    /// The command that made the report.
    pub command: String,
}

/// Pads columns to their widest cell; numbers (columns in `right`) to the right.
pub fn columns(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let gap = widths[column] - cell.chars().count();
                let (before, after) = if right.contains(&column) { (gap, 0) } else { (0, gap) };
                // Writing to a String cannot fail.
                let _ = write!(line, "{}{cell}{}   ", " ".repeat(before), " ".repeat(after));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

/// 1234567 as `1,234,567`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "1".into()], vec!["bcd".into(), "234".into()]];
        assert_eq!(columns(&rows, &[1]), ["a       1", "bcd   234"]);
    }

    #[test]
    fn thousands_are_set_off() {
        assert_eq!(
            [0, 999, 1000, 49_152, 1_234_567].map(thousands).join(" "),
            "0 999 1,000 49,152 1,234,567"
        );
    }
}
