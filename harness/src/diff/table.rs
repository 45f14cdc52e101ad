//! The report for people: a line for each tensor that is not bit-equal, and the counts.

use super::row::{Report, TensorRow, Verdict};
use crate::compare::bits::Difference;
use crate::report::thousands;

const HEADS: [&str; 8] =
    ["tensor", "dtype", "shape", "differ", "max ulp", "max abs", "rmse", "where"];
/// Columns of numbers, set to the right.
const NUMBERS: std::ops::RangeInclusive<usize> = 3..=6;

/// The table, the listed elements, and the line of counts (without a line end, for the caller to add the time).
pub fn human(report: &Report) -> String {
    let shown: Vec<&TensorRow> =
        report.rows.iter().filter(|row| row.verdict != Verdict::Equal).collect();
    let mut text = String::new();
    if !shown.is_empty() {
        text.push_str(&table(&shown));
        text.push('\n');
    }
    for row in shown.iter().filter(|row| !row.dump.is_empty()) {
        text.push_str(&dump(row));
        text.push('\n');
    }
    text.push_str(&counts(report));
    text
}

fn table(rows: &[&TensorRow]) -> String {
    let mut lines = vec![HEADS.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| cells(row)));
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADS.len()] = std::array::from_fn(width);
    let text = lines.iter().map(|line| {
        let padded = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if NUMBERS.contains(&column) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    });
    text.collect::<Vec<_>>().join("\n")
}

fn cells(row: &TensorRow) -> [String; HEADS.len()] {
    let number = |x: Option<f64>| x.map_or_else(|| "–".to_owned(), |x| format!("{x:.1e}"));
    let place = row.worst.as_ref().map_or_else(String::new, |worst| format!("{:?}", worst.coords));
    let [dtype, shape] = forms(row);
    let name = row.tensor.clone();
    let none = String::new;
    match row.verdict {
        Verdict::Equal | Verdict::Within | Verdict::Differs => [
            name,
            dtype,
            shape,
            format!("{} / {}", thousands(row.differ as usize), thousands(row.elements as usize)),
            row.max_ulp.map_or_else(|| "–".to_owned(), |ulp| thousands(ulp as usize)),
            number(row.max_abs),
            number(row.rmse),
            format!("{place}{}", remark(row)),
        ],
        verdict => [name, dtype, shape, word(verdict).to_owned(), none(), none(), none(), none()],
    }
}

/// Both sides where they disagree.
fn forms(row: &TensorRow) -> [String; 2] {
    let both = |a: Option<String>, b: Option<String>| match (a, b) {
        (Some(a), Some(b)) if a != b => format!("{a} / {b}"),
        (a, b) => a.or(b).unwrap_or_default(),
    };
    let dtype = |form: &crate::compare::bits::Form| form.dtype.to_string();
    let shape = |form: &crate::compare::bits::Form| format!("{:?}", form.shape);
    let (a, b) = (row.a.as_ref(), row.b.as_ref());
    [both(a.map(dtype), b.map(dtype)), both(a.map(shape), b.map(shape))]
}

fn remark(row: &TensorRow) -> String {
    let histogram = &row.histogram;
    let mut parts = Vec::new();
    if row.verdict == Verdict::Within {
        parts.push("within the bound".to_owned());
    }
    let counts = [
        (histogram.nan, "NaN"),
        (histogram.infinite, "infinite"),
        (histogram.sign, "of other sign"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    parts.extend(counts.map(|(count, what)| format!("{} {what}", thousands(count as usize))));
    if parts.is_empty() { String::new() } else { format!("  {}", parts.join(", ")) }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Equal => "equal",
        Verdict::Within => "within",
        Verdict::Differs => "differs",
        Verdict::Dtype => "other dtype",
        Verdict::Shape => "other shape",
        Verdict::OnlyInA => "only in a",
        Verdict::OnlyInB => "only in b",
    }
}

fn dump(row: &TensorRow) -> String {
    let line = |difference: &Difference| {
        let Difference { coords, got, want, distance, .. } = difference;
        format!("  {}{coords:?}   a {got}   b {want}   {distance}", row.tensor)
    };
    row.dump.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `74 tensors: 72 bit-equal · 1 differs · 1 missing`
fn counts(report: &Report) -> String {
    let missing = report.count(Verdict::OnlyInA) + report.count(Verdict::OnlyInB);
    let counts = [
        (report.count(Verdict::Equal), "bit-equal"),
        (report.count(Verdict::Within), "within the bound"),
        (report.count(Verdict::Differs), "differs"),
        (report.count(Verdict::Dtype), "of other dtype"),
        (report.count(Verdict::Shape), "of other shape"),
        (missing, "missing"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> =
        counts.map(|(count, what)| format!("{} {what}", thousands(count))).collect();
    let total = report.rows.len();
    let plural = if total == 1 { "" } else { "s" };
    format!("{} tensor{plural}: {}", thousands(total), counts.join(" · "))
}
