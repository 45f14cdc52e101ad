//! `mlx-parity gate` and `ledger` as people meet them: a kernel that does not exist, a ledger that must not be believed,
//! a run that is killed.

mod support;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use rstest::rstest;
use support::Project;

const HELD: i32 = 0;
const USAGE: i32 = 2;
const STALE: i32 = 101;

#[rstest]
#[case::gate(&["gate", "fused_nothing"], "there is no kernel `fused_nothing`; wanted one of")]
#[case::jobs(&["gate", "--jobs", "0"], "at least one worker")]
#[case::both(&["gate", "--quick", "--explain", "x"], "cannot be used with")]
#[case::trial(&["case", "kernel/fused_nothing/f32/rows/n=1"], "there is no kernel `fused_nothing`")]
#[case::no_trial(&["case", "kernel/fused_nothing"], "wanted kernel/KERNEL/DTYPE/CLASS/TRIAL")]
#[case::lever(&["generate", "glassllm-4bit", "--prompt", "x", "--levers", "fused_nothing=on"], "wanted one of the kernels")]
#[case::position(&["generate", "glassllm-4bit", "--prompt", "x", "--levers", "fused_mlp=maybe"], "ID=off|promoted|on")]
#[case::nothing_pending(&["ledger", "accept"], "nothing is pending")]
#[case::nothing_to_resume(&["gate", "--resume", "--record", "elsewhere"], "nothing to resume")]
fn what_cannot_be_done_says_why(#[case] arguments: &[&str], #[case] why: &str) {
    let ran = Project::new().run(arguments).expect(USAGE);
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

#[test]
fn a_ledger_is_shown_checked_and_refused() {
    let project = Project::new();
    let path = project.path().join("goldens/ledger.toml");
    let accepted = fs::read_to_string(&path).unwrap();
    fs::write(&path, "schema = 1\n").unwrap();
    assert!(project.run(&["ledger", "show"]).expect(HELD).stdout.contains("every kernel is off"));
    assert!(project.run(&["ledger", "review"]).expect(HELD).stdout.contains("nothing is pending"));
    assert!(project.run(&["ledger", "check"]).expect(HELD).stdout.contains("0 promoted, 0 stale"));
    fs::write(&path, format!("colour = \"red\"\n{accepted}")).unwrap();
    let ran = project.run(&["ledger", "check"]).expect(STALE);
    assert!(
        ran.stderr.contains("ledger.toml") && ran.stderr.contains("unknown field"),
        "{}",
        ran.stderr
    );
}

#[test]
fn nothing_is_accepted_in_continuous_integration() {
    let project = Project::new();
    let mut command = project.command(&["ledger", "accept"]);
    let ran = support::Ran::from(command.env("CI", "true").output().unwrap()).expect(USAGE);
    assert!(ran.stderr.contains("never in continuous integration"), "{}", ran.stderr);
}

/// A quick gate of one kernel: 6 cells of 9 kinds of evidence.
const QUICK: [&str; 6] = ["gate", "fused_geglu_vjp", "--quick", "--format", "jsonl", "--record"];
const EVIDENCE: usize = 54;

#[test]
fn a_killed_gate_is_finished_where_it_stood() {
    let project = Project::new();
    let mut command = project.command(&[&QUICK[..], &["killed"]].concat());
    let mut run = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    lines.nth(19).unwrap().unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    let refused = project.run(&[&QUICK[..], &["killed", "--jobs", "1", "--resume"]].concat());
    let mut ids: Vec<String> = refused.expect(HELD).rows().into_iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), EVIDENCE, "rows of the first sitting are shown again, none twice");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), EVIDENCE);
    assert!(
        !project.path().join("goldens/ledger.toml.new").exists(),
        "a quick gate decides nothing"
    );
    let again = project.run(&[&QUICK[..], &["killed", "--resume"]].concat()).expect(USAGE);
    assert!(again.stderr.contains("nothing to resume"), "{}", again.stderr);
}

#[test]
fn a_promotion_by_hand_is_not_believed() {
    let project = Project::new();
    let path = project.path().join("goldens/ledger.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"hold\"", "\"promote\"", 1)).unwrap();
    for command in ["check", "show"] {
        let ran = project.run(&["ledger", command]).expect(STALE);
        assert!(ran.stderr.contains("not by hand"), "{}", ran.stderr);
    }
}
