//! Frozen trajectories and their envelopes, from case file to exit code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;

use mlx_parity::row::{NotRunKind, Outcome, Row};
use rstest::rstest;

use support::{Project, Ran};

const HELD: i32 = 0;
const MISMATCH: i32 = 100;
const GOLDEN: i32 = 101;
const ORACLE: i32 = 102;

/// Four sentences with a model and an envelope.
const CASE: &str = r#"
    [[prompt]]
    name = "a"
    prompt.text = "They ought to be heard whether they are made by one person or by two if they are just. Porcupine remonstrated with me by quoting Might is right in English. I did not catch his point, so I asked him again, and he told me that it meant the right of the stronger."
    [[prompt]]
    name = "b"
    prompt.text = "If they wanted me to fill such an onerous post, they should have told all that before. I hate to tell a lie; I would give it up as having been cheated, and get out of this mess like a man there and then. I had only about nine yen left in my pocket."
    [[prompt]]
    name = "c"
    prompt.text = "When I received the letter from my Master Darling, I intended to write an answer at once. But I caught cold and was sick abed for about one week and the answer was delayed for which I beg your pardon. I am not used to writing or reading like girls in these days."
    [[prompt]]
    name = "d"
    prompt.text = "He rolled up his sleeves over his plump arms as he spoke. I asked him, by the way, if he knew jiujitsu, because his arms looked powerful. Then he put force in his forearm, and told me to touch it. I felt its swelled muscle which was hard as the pumice stone."
    [[trajectory]]
    name = "qwen3-1m"
    model = "qwen3-1m"
    positions = 64
    decode-from = "prompt"
    why = "test"
    [[trajectory.envelope]]
    name = "packed"
    composition = { kv = { all = { bits = 8, group = 32 } }, convert = "empty" }
    max-mean = 1e-3
    max-p99 = 1e-2
    min-agreement = 0.95
"#;

fn project(text: &str) -> Project {
    Project::new().only_cases("l3", text)
}

fn verify(project: &Project, more: &[&str]) -> Ran {
    let arguments = ["verify", "l3/test/", "--format", "jsonl", "--jobs", "1"];
    project.run(&[&arguments, more].concat())
}

fn row<'a>(rows: &'a [Row], check: &str) -> &'a Row {
    rows.iter().find(|row| row.id.ends_with(check)).unwrap()
}

#[test]
fn the_path_repeats_itself_and_packed_rows_stay_in_their_envelope() {
    let project = project(CASE);
    let rows = verify(&project, &[]).expect(HELD).rows();
    let ids: Vec<_> =
        rows.iter().map(|row| row.id.strip_prefix("l3/test/qwen3-1m/").unwrap()).collect();
    assert_eq!(
        ids,
        ["tokenize", "control/a", "control/b", "control/c", "control/d", "envelope/packed"]
    );
    let report = row(&rows, "packed").envelope.as_ref().unwrap();
    assert_eq!((report.positions, report.prompts), (256, 4));
    assert_eq!((report.again.mean, report.again.agree), (0.0, report.again.of));
    assert!(report.kl.mean > 0.0, "8 bits are not 16");
    assert_eq!(row(&rows, "packed").composition.as_deref(), Some("kv8 g32 from empty"));
    assert_eq!(rows[0].oracle, "self");

    // The same bits from an accepted golden, and the same numbers.
    project.run(&["goldens", "accept", "--live", "l3/test/"]).expect(HELD);
    let again = verify(&project, &[]).expect(HELD).rows();
    assert_eq!(row(&again, "packed").envelope, row(&rows, "packed").envelope);
    assert_ne!(again[1].notes, rows[1].notes, "compared with the accepted golden now");

    // A bound is no part of the golden's identity, what is computed is.
    let file = project.path().join("goldens/cases/l3/test.toml");
    fs::write(&file, CASE.replace("max-mean = 1e-3", "max-mean = 2e-3")).unwrap();
    verify(&project, &[]).expect(HELD);
    fs::write(&file, CASE.replace("positions = 64", "positions = 65")).unwrap();
    let rows = verify(&project, &[]).expect(GOLDEN).rows();
    let Outcome::NotRun { kind: NotRunKind::GoldenUnfit, message } = &rows[0].outcome else {
        panic!("{:?}", rows[0].outcome)
    };
    assert!(message.contains("has changed since"), "{message}");

    // A flipped bit of the golden is found before anything is compared with it.
    fs::write(&file, CASE).unwrap();
    let tensors = project.golden("l3/test/qwen3-1m").join("tensors.safetensors");
    let mut bytes = fs::read(&tensors).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&tensors, bytes).unwrap();
    verify(&project, &[]).expect(GOLDEN);
}

#[test]
fn four_bits_do_not_pass_for_eight() {
    let project = project(&CASE.replace("bits = 8", "bits = 4"));
    let text = project.run(&["verify", "l3/test/"]).expect(MISMATCH).stdout;
    assert!(text.contains("FAIL l3/test/qwen3-1m/envelope/packed\n  KL "), "{text}");
    assert!(text.contains("broken   mean KL may be") && text.contains("(control 0, "), "{text}");
    assert!(text.contains("6 checks: 5 held · 0 not run · 1 failed"), "{text}");
}

/// Without its control an envelope says nothing, and nothing is what it then says.
#[cfg(debug_assertions)]
#[test]
fn a_path_that_does_not_repeat_itself_fails_and_judges_no_one() {
    let project = project(CASE);
    let rows = verify(&project, &["--fault", "drop-last-key"]).expect(MISMATCH).rows();
    assert_eq!(row(&rows, "control/a").outcome, Outcome::Differ);
    assert!(row(&rows, "control/a").report.is_some());
    let Outcome::NotRun { kind: NotRunKind::Interrupted, message } = &row(&rows, "packed").outcome
    else {
        panic!("{:?}", row(&rows, "packed").outcome)
    };
    assert!(message.contains("does not repeat"), "{message}");
}

#[rstest]
#[case::loops(&CASE.replace("it meant the right of the stronger.", &"the same ".repeat(60)), GOLDEN, "distinct ids")]
#[case::greedy_loops(&CASE.replace("decode-from = \"prompt\"", "decode-from = \"greedy\""), GOLDEN, "prompt `")]
#[case::short(&CASE.replace("positions = 64", "positions = 640"), ORACLE, "wanted more than 640")]
fn a_degenerate_trajectory_is_not_frozen(
    #[case] text: &str,
    #[case] code: i32,
    #[case] wanted: &str,
) {
    let project = project(text);
    let said = project.run(&["freeze", "l3/test/"]).expect(code).stdout;
    assert!(said.contains("refused") && said.contains(wanted), "{said}");
    assert!(!project.golden("l3/test").join("qwen3-1m.new").exists());
    let left = fs::read_dir(project.golden("l3/test")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing half-written is left");
}

#[test]
fn a_frozen_trajectory_waits_for_acceptance() {
    let project = project(CASE);
    project.run(&["freeze", "l3/test/"]).expect(HELD);
    let review = project.run(&["goldens", "review"]).expect(HELD).stdout;
    assert!(review.contains("oracle    self") && review.contains("\"entropy\""), "{review}");
    project.run(&["goldens", "accept", "l3/test/"]).expect(HELD);
    assert!(project.golden("l3/test/qwen3-1m/manifest.json").is_file());
    verify(&project, &["--live"]).expect(HELD);
}
