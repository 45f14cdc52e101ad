//! `mlx-parity gate` and `ledger` as people meet them: a kernel that does not exist, a ledger that must not be believed,
//! a run that is killed.

mod support;

use std::fs;

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
