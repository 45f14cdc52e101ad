//! Ops through the real binary and real MLX: rows, expected failures, tables that are out of date.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use mlx_parity::row::Outcome;
use support::Project;

const CASES: &str = r#"
    [[case]]
    op = "argmax"
    name = "rows"
    dtypes = ["f32"]
    generators = ["random", "nan-each"]
    grid = [{ shape = "7x33" }]
    quick = true
    why = "NaN at each position"

    [[case]]
    op = "floor_divide"
    name = "integers"
    dtypes = ["i32"]
    generators = ["integers"]
    grid = [{ a = "7x33", b = "33" }]
    why = "negative quotients"
"#;

const TOLERANCES: &str = r#"
    [[default]]
    units = 0
    zeros = "signed"
    source = "exact"
"#;

const IDLE: &str = r#"
    [[except]]
    ops = ["argmax"]
    units = 2
    reason = "none"
"#;

const EXPECTED: &str = r#"
    [[expect]]
    checks = ["ops/argmax/rows/f32/*/nan-each"]
    backend = "cpu"
    mlx = "0.32.2"
    kind = "NaN policy"
    reason = "a NaN is passed over"
    upstream = "mlx#4274"
"#;

fn project(tolerances: &str, expectations: &str) -> Project {
    let project = Project::new().only_cases("ops", CASES);
    fs::write(project.path().join("goldens/tolerances.toml"), tolerances).unwrap();
    fs::write(project.path().join("goldens/expectations.toml"), expectations).unwrap();
    project
}

#[test]
fn a_row_says_how_far_off_which_convention_and_how_to_replay() {
    let project = project(TOLERANCES, "");
    let ran = project.run(&["verify", "--tier", "ops", "--format", "jsonl"]).expect(100);
    let rows = ran.rows();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows.iter().filter(|row| row.outcome == Outcome::Held).count(), 1);
    let row = rows.iter().find(|row| row.subject == "floor_divide").unwrap();
    assert_eq!(row.convention.as_deref(), Some("division-truncates"));
    let tolerance = row.tolerance.as_ref().unwrap();
    assert!(!tolerance.held && tolerance.minimum == 1.0);
    let text = mlx_parity::report::failure(row);
    assert!(text.contains("value[") && text.contains("0x"), "{text}");
    assert!(text.contains("the convention division-truncates"), "{text}");
    assert!(text.ends_with(&format!("replay   mlx-parity case {}", row.id)), "{text}");
}

#[test]
fn an_expected_failure_is_listed_with_kind_and_reference() {
    let ran = project(TOLERANCES, EXPECTED).run(&["verify", "ops/argmax"]).expect(0);
    let line = ran.stdout.lines().find(|line| line.contains("NaN policy   mlx#4274")).unwrap();
    assert!(line.starts_with("argmax f32") && line.ends_with("a NaN is passed over"), "{line}");
}

#[test]
fn quick_leaves_the_other_cases_out() {
    let ran = project(TOLERANCES, EXPECTED).run(&["verify", "--tier", "ops", "--quick"]).expect(0);
    assert!(ran.stdout.contains("2 checks"), "{}", ran.stdout);
}

#[test]
fn an_exception_that_loosens_nothing_fails_the_run() {
    let tolerances = format!("{TOLERANCES}{IDLE}");
    let ran = project(&tolerances, EXPECTED).run(&["verify", "ops/argmax"]).expect(100);
    let complaint = "the line for argmax allows 2 units, but its checks need at most 0.000";
    assert!(ran.stdout.contains(complaint), "{}", ran.stdout);
}

#[test]
fn an_exception_for_no_case_is_refused() {
    let tolerances = format!("{TOLERANCES}{}", IDLE.replace("argmax", "argmin"));
    let ran = project(&tolerances, EXPECTED).run(&["verify", "ops/argmax"]).expect(2);
    assert!(ran.stderr.contains("no check is bound by it"), "{}", ran.stderr);
}
