//! Making the folder of a synthetic model, and the commands that stand on it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    thread,
};

use mlx_parity::{
    row::{NotRunKind, Outcome},
    synthetic::{Lane, materialise},
    worker,
};
use rstest::rstest;
use support::{Project, checkout};

fn llama() -> PathBuf {
    checkout().join("goldens/synthetic/llama")
}

/// Files of a folder, by name.
fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A project whose synthetic models are made in the project itself.
fn with_own_models() -> Project {
    let project = Project::new();
    let models = project.path().join("target/mlx/models");
    fs::remove_file(&models).unwrap();
    fs::create_dir_all(&models).unwrap();
    let theirs = checkout().join("target/mlx/models");
    for name in listing(&theirs).iter().filter(|name| *name != "synthetic") {
        symlink(theirs.join(name), models.join(name)).unwrap();
    }
    project
}

#[test]
fn a_folder_is_made_once_and_again_when_stale() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("deep/llama-4bit");
    materialise(&llama(), Lane::FourBit, &target).unwrap();
    assert_eq!(listing(&target), ["config.json", "model.safetensors", "synthetic.json"]);
    let made = fs::metadata(target.join("config.json")).unwrap().modified().unwrap();
    materialise(&llama(), Lane::FourBit, &target).unwrap();
    let again = fs::metadata(target.join("config.json")).unwrap().modified().unwrap();
    assert_eq!(made, again);

    fs::write(target.join("synthetic.json"), "{}").unwrap();
    fs::write(target.join("model.safetensors"), "damaged").unwrap();
    materialise(&llama(), Lane::FourBit, &target).unwrap();
    assert!(fs::metadata(target.join("model.safetensors")).unwrap().len() > 1000);
    assert_eq!(listing(target.parent().unwrap()), ["llama-4bit"], "nothing else is left");
}

#[test]
fn many_at_once_leave_one_whole_folder() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("llama-f32");
    for round in 0..4 {
        if round > 0 {
            fs::write(target.join("synthetic.json"), "stale").unwrap();
        }
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| materialise(&llama(), Lane::F32, &target).unwrap());
            }
        });
        assert_eq!(listing(&target), ["config.json", "model.safetensors", "synthetic.json"]);
        assert_eq!(listing(dir.path()), ["llama-f32"]);
    }
}

#[test]
fn weights_with_another_digest_are_refused_and_nothing_is_left() {
    let source = tempfile::tempdir().unwrap();
    for name in ["config.json", "tensors.json"] {
        fs::copy(llama().join(name), source.path().join(name)).unwrap();
    }
    // One tensor drawn otherwise than the Python twin drew it.
    let path = source.path().join("tensors.json");
    let text =
        fs::read_to_string(&path).unwrap().replacen(r#""init":"bias""#, r#""init":"a-log""#, 1);
    fs::write(&path, text).unwrap();
    let target = tempfile::tempdir().unwrap();
    let error = materialise(source.path(), Lane::F32, &target.path().join("x")).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("tensors.json") && message.contains("generators differ"), "{message}");
    assert!(listing(target.path()).is_empty());
}

#[test]
fn a_folder_that_cannot_be_written_is_one_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let target = dir.path().join("file/llama-f32");
    let message = materialise(&llama(), Lane::F32, &target).unwrap_err().to_string();
    assert!(message.starts_with("cannot create") && message.contains("file"), "{message}");
}

#[test]
fn every_lane_is_a_model_made_on_demand() {
    let project = with_own_models();
    let rows = project.run(&["verify", "l1/llama/", "--format", "jsonl"]).expect(0).rows();
    assert_eq!(rows.len(), 75);
    assert!(rows.iter().all(|row| row.outcome == Outcome::Held && row.notes.is_empty()));
    let made = listing(&project.path().join("target/mlx/models/synthetic"));
    assert_eq!(made, ["llama-4bit", "llama-bf16", "llama-f32"]);
}

#[rstest]
#[case::no_tensors("tensors.json", None, "tensors.json is missing; `mlx-parity freeze llama`")]
#[case::changed_config(
    "config.json",
    Some(r#"{ "model_type": "llama" }"#),
    "from another config.json"
)]
#[case::broken_config("config.json", Some("{"), "config.json: EOF")]
fn a_bad_folder_is_not_run_and_named(
    #[case] file: &str,
    #[case] text: Option<&str>,
    #[case] wanted: &str,
) {
    let project = with_own_models();
    let path = project.path().join("goldens/synthetic/llama").join(file);
    match text {
        Some(text) => fs::write(path, text).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
    let rows = project.run(&["verify", "l1/llama/", "--format", "jsonl"]).expect(101).rows();
    for row in rows {
        let Outcome::NotRun { kind, message } = row.outcome else { panic!("{row:?}") };
        assert_eq!(kind, NotRunKind::GoldenUnfit);
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn one_command_makes_tensors_case_and_goldens_from_a_config() {
    let project = with_own_models();
    let goldens = project.path().join("goldens");
    let case = goldens.join("cases/l1/llama.toml");
    let tensors = goldens.join("synthetic/llama/tensors.json");
    let before = fs::read_to_string(&tensors).unwrap();
    fs::remove_file(&case).unwrap();
    fs::remove_file(&tensors).unwrap();
    let ran = project.run(&["freeze", "llama"]).expect(0);
    assert_eq!(fs::read_to_string(&tensors).unwrap(), before);
    for lane in ["f32", "bf16", "4bit"] {
        assert!(
            ran.stdout.contains(&format!("pending     l1/llama/{lane}/window")),
            "{}",
            ran.stdout
        );
    }
    assert!(fs::read_to_string(&case).unwrap().contains("lanes = ["));
    project.run(&["goldens", "accept", "l1/llama/"]).expect(0);
    // What it froze is what is committed for this class of machines, down to the bit.
    let class = worker::probe(Path::new(support::PROGRAM)).unwrap().class();
    let frozen = |root: &Path| {
        let path = root.join("goldens/frozen").join(&class).join("l1/llama/bf16/window");
        fs::read(path.join("tensors.safetensors"))
    };
    let committed = frozen(&checkout());
    assert!(committed.is_err() || frozen(project.path()).unwrap() == committed.unwrap());
}

#[test]
fn a_config_the_reference_refuses_is_one_clear_error() {
    let project = with_own_models();
    let dir = project.path().join("goldens/synthetic/nothing");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("config.json"), r#"{ "model_type": "nothing" }"#).unwrap();
    let ran = project.run(&["freeze", "nothing"]).expect(102);
    let wanted = "goldens/synthetic/nothing: oracle mlx-lm refused: ValueError";
    assert!(ran.stderr.contains(wanted) && ran.stderr.contains("nothing"), "{}", ran.stderr);
    assert_eq!(listing(&dir), ["config.json"]);
}

#[test]
fn a_lane_that_cannot_be_frozen_is_not_run_with_its_reason() {
    let project = with_own_models();
    let case = project.path().join("goldens/cases/l1/llama.toml");
    let text = fs::read_to_string(&case).unwrap();
    let lanes = "lanes = [\"f32\", \"4bit\"]\nnot-frozen = { bf16 = \"it throws there\" }";
    let text = text.replace("lanes = [\"f32\", \"bf16\", \"4bit\"]", lanes);
    fs::write(&case, text).unwrap();
    let rows = project.run(&["verify", "l1/llama/", "--format", "jsonl"]).expect(0).rows();
    let left_out: Vec<_> = rows.iter().filter(|row| !row.ran()).collect();
    assert_eq!((rows.len(), left_out.len()), (75, 25));
    for row in left_out {
        let Outcome::NotRun { kind, message } = &row.outcome else { panic!("{row:?}") };
        assert_eq!(*kind, NotRunKind::Unsupported);
        assert!(message.contains("it throws there"), "{message}");
    }
    // Alone it is a run in which nothing ran.
    project.run(&["verify", "l1/llama/bf16/"]).expect(4);
    let ran = project.run(&["freeze", "l1/llama/bf16/"]).expect(0);
    assert!(
        ran.stdout.contains("not frozen  l1/llama/bf16/window  it throws there"),
        "{}",
        ran.stdout
    );
}
