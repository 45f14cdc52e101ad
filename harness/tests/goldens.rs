//! Freezing, reviewing and accepting goldens with the real oracle.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use support::Project;

const CASE: &str = r#"
[[case]]
name = "f32/short"
model = "glassllm-f32"
prompt = { text = "The rain fell on the roof of the little house." }
decode = 12
why = "test"
"#;

fn fresh() -> Project {
    let project = Project::new().only_cases("l1", CASE);
    fs::remove_dir_all(project.path().join("goldens/frozen")).unwrap();
    project
}

#[test]
fn a_frozen_golden_waits_and_is_accepted_by_a_person() {
    let project = fresh();
    let ran = project.run(&["freeze", "l1/test/f32/short"]).expect(0);
    assert!(ran.stdout.contains("pending     l1/test/f32/short"), "{}", ran.stdout);
    let review = project.run(&["goldens", "review"]).expect(0);
    assert!(review.stdout.contains("no golden is there yet"), "{}", review.stdout);
    project.run(&["goldens", "accept"]).expect(0);
    let rows = project.run(&["verify", "--tier", "l1", "--format", "jsonl"]).expect(0).rows();
    assert!(
        rows.iter().all(|row| row.notes.is_empty()),
        "the committed one answers: {:?}",
        rows[0]
    );
    assert!(project.run(&["goldens", "list"]).expect(0).stdout.contains("accepted  l1/test"));
}

#[test]
fn nothing_is_written_in_ci() {
    let project = fresh();
    for arguments in [&["freeze", "l1/test"][..], &["goldens", "accept", "--live"]] {
        project.run(&["verify", "--tier", "l1"]).expect(0);
        let output = project.command(arguments).env("CI", "true").output().unwrap();
        assert_eq!(output.status.code(), Some(101));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("refusing to write goldens while CI is set"), "{stderr}");
    }
    assert!(!project.path().join("goldens/frozen").exists());
}

#[test]
fn a_degenerate_golden_is_refused_unless_the_case_says_why() {
    // Forced steps of one token, over and over: nothing to check.
    let dull = CASE
        .replace(
            "text = \"The rain fell on the roof of the little house.\"",
            &format!("ids = {:?}", [4; 40]),
        )
        .replace("decode = 12", "decode = 38\ndecode-from = \"prompt\"");
    let project = Project::new().only_cases("l1", &dull);
    fs::remove_dir_all(project.path().join("goldens/frozen")).unwrap();
    let ran = project.run(&["freeze", "l1/test"]).expect(101);
    assert!(ran.stdout.contains("refusing a degenerate golden"), "{}", ran.stdout);
    assert!(fs::read_dir(project.path().join("goldens")).unwrap().count() >= 3);
    let meant = dull.replace("why =", "degenerate-because = \"the test means it\"\nwhy =");
    let project = Project::new().only_cases("l1", &meant);
    project.run(&["freeze", "l1/test"]).expect(0);
}

#[test]
fn an_orphan_is_refused() {
    let project = Project::new().only_cases("l1", CASE);
    let ran = project.run(&["goldens", "list"]).expect(101);
    assert!(ran.stdout.contains("orphan    goldens/frozen"), "{}", ran.stdout);
}

#[test]
fn a_live_golden_can_be_accepted_for_this_class_of_machines() {
    let project = fresh();
    project.run(&["verify", "--tier", "l1"]).expect(0);
    project.run(&["goldens", "accept", "--live"]).expect(0);
    let rows = project.run(&["verify", "--tier", "l1", "--format", "jsonl"]).expect(0).rows();
    assert!(rows.iter().all(|row| row.notes.is_empty()));
}

#[test]
fn a_rejected_golden_is_gone() {
    let project = fresh();
    project.run(&["freeze", "l1/test"]).expect(0);
    project.run(&["goldens", "reject"]).expect(0);
    assert!(project.run(&["goldens", "review"]).expect(0).stdout.contains("nothing is pending"));
}
