//! `verify` as a person or CI meets it: the real binary, real MLX, and engines made wrong on purpose.
//!
//! These need what `cargo xtask setup` provisions, as the whole suite does.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use mlx_parity::row::{NotRunKind, Outcome, Row};
use rstest::rstest;
use support::Project;

const STORY: &str = "l1/glassllm/f32/story";

fn jsonl<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["verify", "--format", "jsonl"], rest].concat()
}

fn outcomes(rows: &[Row]) -> (usize, usize, usize) {
    let count = |wanted: fn(&Outcome) -> bool| rows.iter().filter(|r| wanted(&r.outcome)).count();
    (
        count(|o| *o == Outcome::Held),
        count(|o| *o == Outcome::Differ),
        count(|o| matches!(o, Outcome::NotRun { .. })),
    )
}

#[test]
fn a_right_engine_holds_and_the_record_is_complete() {
    let project = Project::new();
    let ran = project.run(&["verify", STORY]).expect(0);
    assert!(ran.stdout.contains("34 checks: 34 held · 0 not run · 0 failed"), "{}", ran.stdout);
    let run = fs::read_dir(project.path().join("reports/record")).unwrap().next().unwrap().unwrap();
    for name in ["run.json", "rows.jsonl", "junit.xml", "summary.md"] {
        assert!(run.path().join(name).is_file(), "{name}");
    }
    assert_eq!(mlx_parity::record::read(&run.path()).unwrap().len(), 34);
}

#[rstest]
#[case::rope_base("rope-base", STORY)]
#[case::dropped_key("drop-last-key", STORY)]
#[case::softmax_dtype("softmax-dtype", STORY)]
#[case::quantized("rope-base", "l1/glassllm/4-bit/story")]
#[case::half("drop-last-key", "l1/qwen3-1m/bf16/story")]
#[case::window("drop-last-key", "l1/gemma3-1m/bf16/past-window")]
fn a_wrong_engine_exits_100_and_the_row_says_where(#[case] fault: &str, #[case] case: &str) {
    let project = Project::new();
    let rows = project.run(&jsonl(&[case, "--fault", fault])).expect(100).rows();
    let first = rows.iter().find(|row| row.outcome == Outcome::Differ).unwrap();
    assert!(first.notes.iter().any(|note| note.contains(fault)));
    let text = mlx_parity::report::failure(first);
    assert!(text.contains("logits[") && text.contains("0x") && text.contains("ulp"), "{text}");
    assert!(text.contains(&format!("replay   mlx-parity case {}", first.id)), "{text}");
}

#[test]
fn explain_names_the_first_intermediate_that_differs() {
    let project = Project::new();
    let id = format!("{STORY}/prefill");
    let ran = project.run(&["case", &id, "--explain", "--fault", "rope-base"]).expect(100);
    // Rope is where the fault is: the projections before it must be named as equal.
    assert!(ran.stdout.contains("first difference at layers.0.self_attn.q_rope"), "{}", ran.stdout);
    assert!(ran.stdout.contains("are bit-exact, the last layers.0.self_attn."), "{}", ran.stdout);
}

#[test]
fn one_flipped_bit_in_a_golden_exits_101() {
    let project = Project::new();
    let file = project.golden(STORY).join("tensors.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.len() - 1;
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let rows = project.run(&jsonl(&[STORY])).expect(101).rows();
    assert_eq!(outcomes(&rows), (0, 0, 34));
    let Outcome::NotRun { kind, message } = &rows[0].outcome else { panic!() };
    assert_eq!(*kind, NotRunKind::GoldenUnfit);
    assert!(message.contains("tensors.safetensors") && message.contains("digest"), "{message}");
}

#[rstest]
#[case::abort("abort", "SIGABRT")]
#[case::segv("segv", "SIGSEGV")]
#[case::hang("hang", "no answer in 8 s")]
fn a_worker_that_dies_is_a_row_and_the_run_goes_on(#[case] fault: &str, #[case] how: &str) {
    let project = Project::new();
    let arguments = jsonl(&["l1/glassllm/f32", "--fault", fault, "--timeout", "8", "--jobs", "2"]);
    let rows = project.run(&arguments).expect(103).rows();
    // Three cases, each struck at its third decode step: nothing is lost before, all is told after.
    assert_eq!(rows.len(), 34 + 10 + 33);
    let crashed: Vec<_> =
        rows.iter().filter(|row| matches!(row.outcome, Outcome::Crashed { .. })).collect();
    assert_eq!(crashed.len(), 3);
    for row in crashed {
        let Outcome::Crashed { how: found } = &row.outcome else { unreachable!() };
        assert!(found.contains(how) && row.id.ends_with("step-003"), "{}: {found}", row.id);
    }
    assert_eq!(
        outcomes(&rows).0,
        3 * 3 + 2,
        "prefill and two steps of each, and two tokenize rows"
    );
}

#[test]
fn a_worker_killed_from_outside_is_a_crashed_row() {
    let project = Project::new();
    let mut run = project
        .command(&jsonl(&[STORY, "--fault", "hang", "--jobs", "1"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let mut rows: Vec<Row> = Vec::new();
    for line in lines {
        rows.push(serde_json::from_str(&line.unwrap()).unwrap());
        if rows.last().unwrap().id.ends_with("step-002") {
            let parent = run.id().to_string();
            let killed = Command::new("pkill").args(["-KILL", "-P", &parent]).status().unwrap();
            assert!(killed.success());
        }
    }
    assert_eq!(run.wait().unwrap().code(), Some(103));
    assert_eq!(rows.len(), 34);
    let Outcome::Crashed { how } = &rows[4].outcome else { panic!("{:?}", rows[4]) };
    assert_eq!(how, "SIGKILL");
}

#[test]
fn a_killed_run_resumes_to_the_same_rows_as_an_undisturbed_one() {
    let project = Project::new();
    let undisturbed = project.run(&jsonl(&["l1/glassllm", "--record", "a"])).expect(0);
    let mut run = project
        .command(&jsonl(&["l1/glassllm", "--record", "b", "--jobs", "1"]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Killed in the middle of the second case.
    BufReader::new(run.stdout.take().unwrap()).lines().nth(34 + 4).unwrap().unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    let resumed =
        project.run(&jsonl(&["l1/glassllm", "--record", "b", "--resume"])).expect(0).rows();
    assert!(resumed.len() >= 34, "rows of the first sitting are shown again");
    assert_eq!(recorded(&project, "b"), recorded(&project, "a"));
    assert_eq!(recorded(&project, "a").len(), undisturbed.rows().len());
}

fn recorded(project: &Project, record: &str) -> Vec<Row> {
    let run = fs::read_dir(project.path().join(record)).unwrap().next().unwrap().unwrap();
    let rows = mlx_parity::record::read(&run.path()).unwrap();
    rows.into_iter().map(Row::timeless).collect()
}

#[test]
fn resume_without_an_unfinished_run_is_a_usage_error() {
    let project = Project::new();
    let ran = project.run(&["verify", STORY, "--resume"]).expect(2);
    assert!(ran.stderr.contains("nothing to resume"), "{}", ran.stderr);
}

#[test]
fn nothing_selected_is_a_failure_of_its_own() {
    Project::new().run(&["verify", "no-such-case"]).expect(4);
}

#[test]
fn a_model_that_is_not_provisioned_is_not_run_and_no_pass() {
    let project = Project::new();
    let registry = project.path().join("goldens/models.toml");
    let text = fs::read_to_string(&registry).unwrap();
    let text = text.replace("target/mlx/models/glassllm-f32", "target/mlx/models/not-here");
    fs::write(&registry, text).unwrap();
    let ran = project.run(&["verify", STORY]).expect(4);
    assert!(ran.stdout.contains("model not provisioned: cargo xtask setup"), "{}", ran.stdout);
    // Beside checks that ran it does not fail the run.
    let rows = project.run(&jsonl(&["story"])).expect(0).rows();
    assert!(outcomes(&rows).2 >= 34);
}

#[test]
fn changed_weights_make_a_golden_stale() {
    let project = Project::new();
    let file = project.path().join("goldens/models/qwen3-1m/model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.len() - 1;
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let rows = project.run(&jsonl(&["l1/qwen3-1m"])).expect(101).rows();
    let Outcome::NotRun { message, .. } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    assert!(message.contains("stale") && message.contains("weights"), "{message}");
}

#[test]
fn a_missing_golden_is_frozen_live_and_said_so() {
    let project = Project::new();
    fs::remove_dir_all(project.path().join("goldens/frozen")).unwrap();
    let rows = project.run(&jsonl(&["l1/glassllm/f32/chunked"])).expect(0).rows();
    assert!(rows.iter().all(|row| row.outcome == Outcome::Held));
    assert!(rows[0].notes[0].contains("no committed golden"), "{:?}", rows[0].notes);
}

#[test]
fn without_golden_and_oracle_the_checks_are_not_run_and_exit_102() {
    let project = Project::new();
    fs::remove_dir_all(project.path().join("goldens/frozen")).unwrap();
    fs::remove_file(project.path().join("target/mlx/venv")).unwrap();
    let rows = project.run(&jsonl(&["l1/glassllm/f32/chunked"])).expect(102).rows();
    let Outcome::NotRun { kind, message } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    assert_eq!(*kind, NotRunKind::OracleUnavailable);
    assert!(message.contains("cargo xtask setup"), "{message}");
}

#[test]
fn live_agrees_with_the_committed_golden() {
    let rows = Project::new().run(&jsonl(&[STORY, "--live"])).expect(0).rows();
    assert!(rows.iter().all(|row| row.notes[0].contains("agrees with the committed golden")));
}

#[test]
fn shards_cover_the_plan_once() {
    let project = Project::new();
    let ids = |arguments: &[&str]| -> Vec<String> {
        let rows = project.run(&jsonl(arguments)).expect(0).rows();
        rows.into_iter().map(|row| row.id).collect()
    };
    let mut parts = [ids(&["f32/", "--shard", "1/2"]), ids(&["f32/", "--shard", "2/2"])].concat();
    let mut whole = ids(&["f32/"]);
    parts.sort();
    whole.sort();
    assert_eq!(parts, whole);
}

#[test]
fn an_expected_failure_holds_and_passing_against_it_fails() {
    let project = Project::new();
    let expectations = project.path().join("goldens/expectations.toml");
    let entry = format!(
        "[[expect]]\nchecks = [\"{STORY}/*\"]\nbackend = \"cpu\"\nmlx = \"0.32.2\"\n\
         kind = \"test\"\nreason = \"wrong on purpose\"\nupstream = \"none\"\n"
    );
    fs::write(&expectations, entry).unwrap();
    let ran = project.run(&["verify", STORY]).expect(100);
    assert!(ran.stdout.contains("delete the entry"), "{}", ran.stdout);
}

#[test]
fn an_unwritable_record_is_one_clear_error() {
    let project = Project::new();
    fs::write(project.path().join("file"), "").unwrap();
    let ran = project.run(&["verify", STORY, "--record", "file/here"]).expect(1);
    assert!(ran.stderr.contains("cannot create file/here"), "{}", ran.stderr);
}
