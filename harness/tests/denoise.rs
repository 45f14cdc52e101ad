//! Denoising beside mlx-optiq: the real binary, a right engine, wrong ones, and oracles that are not there.
//!
//! These need what `cargo xtask setup` provisions, as the whole suite does.
mod support;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use mlx_parity::row::{NotRunKind, Outcome, Row};
use rstest::rstest;
use support::{Project, checkout};

const CASE: &str = "l2/diffusion_gemma/f32/revealed";
const CASES: &str = "goldens/cases/l2/diffusion_gemma.toml";

fn jsonl<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["verify", "--format", "jsonl"], rest].concat()
}

#[test]
fn a_right_engine_holds_at_every_step() {
    let rows = Project::new().run(&jsonl(&[CASE])).expect(0).rows();
    assert!(rows.iter().all(|row| row.outcome == Outcome::Held));
    let steps = [3, 4, 6];
    assert_eq!(rows.len(), steps.iter().sum::<usize>() + 1);
    assert_eq!(rows[3].id, format!("{CASE}/canvas-2/step-001"));
    assert_eq!(rows.last().unwrap().id, format!("{CASE}/ids"));
}

#[rstest]
#[case::entropy("f32/entropy-bound", 1)]
#[case::confidence("4bit/confidence", 1)]
fn a_position_committed_too_early_exits_100_and_names_the_step(
    #[case] name: &str,
    #[case] step: usize,
) {
    let case = format!("l2/diffusion_gemma/{name}");
    let rows = Project::new().run(&jsonl(&[&case, "--fault", "early-commit"])).expect(100).rows();
    let first = rows.iter().find(|row| row.outcome != Outcome::Held).unwrap();
    assert_eq!(first.id, format!("{case}/canvas-1/step-{step:03}"));
    let text = mlx_parity::report::failure(first);
    assert!(text.contains("committed[") && text.contains("differ 1 of 32"), "{text}");
    // The step after it sees another canvas.
    let next = rows.iter().find(|row| row.id.ends_with(&format!("step-{:03}", step + 1))).unwrap();
    assert!(mlx_parity::report::failure(next).contains("tokens["), "{next:?}");
}

#[test]
fn an_engine_that_takes_other_steps_fails_and_says_so() {
    let rows = Project::new().run(&jsonl(&[CASE, "--fault", "early-commit"])).expect(100).rows();
    let errors: Vec<_> = rows
        .iter()
        .filter_map(|row| match &row.outcome {
            Outcome::Error { message } => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(errors.len(), 1, "{rows:?}");
    assert!(errors[0].contains("step") && errors[0].contains("canvas"), "{}", errors[0]);
}

#[test]
fn explain_names_the_first_intermediate_of_the_step() {
    let id = "l2/diffusion_gemma/bf16/entropy-bound/canvas-1/step-001";
    let ran = Project::new().run(&["case", id, "--explain", "--fault", "rope-base"]).expect(100);
    let wanted =
        ["step 1 of 16 over all canvases", "first difference at layers.0.self_attn.q_rope"];
    assert!(wanted.iter().all(|text| ran.stdout.contains(text)), "{}", ran.stdout);
}

#[test]
fn live_agrees_with_the_committed_golden() {
    let rows = Project::new().run(&jsonl(&[CASE, "--live"])).expect(0).rows();
    assert!(rows.iter().all(|row| row.notes[0].contains("agrees with the committed golden")));
}

#[test]
fn an_oracle_that_takes_other_steps_freezes_nothing() {
    let project = Project::new();
    let file = project.path().join(CASES);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("canvas-steps = [3, 4, 6]", "canvas-steps = [3, 4, 5]")).unwrap();
    let ran = project.run(&["freeze", CASE]).expect(101);
    assert!(ran.stdout.contains("took [3, 4, 6] steps"), "{}", ran.stdout);
    assert!(ran.stdout.contains("the case says [3, 4, 5]"), "{}", ran.stdout);
    assert!(!project.golden(&format!("{CASE}.new")).exists());
    // The committed golden answers another case now.
    let rows = project.run(&jsonl(&[CASE])).expect(101).rows();
    assert_eq!(not_run(&rows).0, NotRunKind::GoldenUnfit);
}

#[test]
fn without_mlx_optiq_the_checks_are_not_run() {
    let project = Project::new();
    fs::remove_dir_all(project.path().join("goldens/frozen")).unwrap();
    let venv = project.path().join("target/mlx/venv");
    fs::remove_file(&venv).unwrap();
    // The environment without mlx-optiq: an import of it fails as one of a missing package does.
    let broken = project.path().join("broken");
    fs::create_dir_all(broken.join("optiq")).unwrap();
    let import = "raise ModuleNotFoundError(\"No module named 'optiq'\", name='optiq')\n";
    fs::write(broken.join("optiq/__init__.py"), import).unwrap();
    fs::create_dir_all(venv.join("bin")).unwrap();
    let python = checkout().join("target/mlx/venv/bin/python");
    let program = venv.join("bin/python");
    let script = format!(
        "#!/bin/sh\nPYTHONPATH='{}' exec '{}' \"$@\"\n",
        broken.display(),
        python.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(checkout().join("target/mlx/venv/lib"), venv.join("lib")).unwrap();

    let rows = project.run(&jsonl(&[CASE])).expect(102).rows();
    assert_eq!(rows.len(), 14);
    let (kind, message) = not_run(&rows);
    assert_eq!(kind, NotRunKind::OracleUnavailable);
    assert!(
        message.contains("mlx-optiq") && message.contains("No module named 'optiq'"),
        "{message}"
    );
}

/// Why none of the rows ran.
fn not_run(rows: &[Row]) -> (NotRunKind, String) {
    assert!(rows.iter().all(|row| !row.ran()), "{rows:?}");
    let Outcome::NotRun { kind, message } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    (*kind, message.clone())
}
