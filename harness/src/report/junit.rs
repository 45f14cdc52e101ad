//! JUnit XML, one test suite a case. "Not run" is `skipped`, never a pass.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::failure;
use crate::row::{Outcome, Row};

/// The rows as a JUnit file.
pub fn junit(rows: &[Row]) -> Result<String, String> {
    let mut report = Report::new("mlx-parity");
    let mut suites: Vec<TestSuite> = Vec::new();
    for row in rows {
        if suites.last().is_none_or(|suite| suite.name.as_str() != row.case) {
            suites.push(TestSuite::new(row.case.as_str()));
        }
        if let Some(suite) = suites.last_mut() {
            suite.add_test_case(case(row));
        }
    }
    report.add_test_suites(suites);
    report.to_string().map_err(|error| error.to_string())
}

fn case(row: &Row) -> TestCase {
    let name = row.id.strip_prefix(&row.case).unwrap_or(&row.id).trim_start_matches('/');
    let mut case = TestCase::new(name, status(row));
    case.set_classname(row.case.replace('/', "::"));
    case.set_time(Duration::from_secs_f64((row.elapsed_ms / 1e3).max(0.0)));
    case
}

fn status(row: &Row) -> TestCaseStatus {
    match &row.outcome {
        Outcome::Held => TestCaseStatus::success(),
        Outcome::NotRun { message, .. } if !row.failed() => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(message.as_str());
            status
        }
        Outcome::ExpectedFailure { reason, upstream, .. } => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("expected failure: {reason} ({upstream})"));
            status
        }
        Outcome::Crashed { .. } | Outcome::NotRun { .. } => non_success(row, NonSuccessKind::Error),
        Outcome::Differ | Outcome::Error { .. } | Outcome::UnexpectedPass { .. } => {
            non_success(row, NonSuccessKind::Failure)
        }
    }
}

fn non_success(row: &Row, kind: NonSuccessKind) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    let text = failure(row);
    status.set_message(text.lines().next().unwrap_or_default());
    status.set_description(text);
    status
}
