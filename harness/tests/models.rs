//! `mlx-parity models`: a type is supported when its goldens were held in every lane, and not before.

mod support;

use std::fs;

use support::Project;

/// The part of the table below a heading that begins with these words.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    text.split("\n\n").find(|part| part.starts_with(heading)).unwrap_or_default()
}

fn lists(section: &str, model_type: &str) -> bool {
    section.lines().any(|line| line.split_whitespace().nth(1) == Some(model_type))
}

fn table(project: &Project) -> String {
    project.run(&["models"]).expect(0).stdout
}

#[test]
fn a_type_is_supported_once_its_goldens_were_held() {
    let project = Project::new();
    let before = table(&project);
    assert_eq!(section(&before, "supported"), "");
    assert!(lists(section(&before, "not known"), "qwen3"), "{before}");

    project.run(&["verify", "l1/qwen3/f32/", "l1/qwen3/bf16/"]).expect(0);
    let partly = table(&project);
    assert!(lists(section(&partly, "not known"), "qwen3"), "{partly}");

    project.run(&["verify", "l1/qwen3/"]).expect(0);
    let after = table(&project);
    assert!(lists(section(&after, "supported"), "qwen3"), "{after}");
    assert!(!lists(section(&after, "supported"), "llama"), "{after}");
}

#[test]
fn a_wrong_engine_on_purpose_says_nothing_of_the_type() {
    let project = Project::new();
    project.run(&["verify", "l1/qwen3/", "--fault", "rope-base"]).expect(100);
    assert!(lists(section(&table(&project), "not known"), "qwen3"));
}

#[test]
fn a_type_whose_golden_is_not_held_is_not_supported() {
    let project = Project::new();
    project.run(&["verify", "l1/qwen3/"]).expect(0);
    // A later run in which one check differs: what a wrong engine would leave.
    let record = project.path().join("reports/record");
    let run = fs::read_dir(&record).unwrap().next().unwrap().unwrap().path();
    let later = record.join("later");
    fs::create_dir(&later).unwrap();
    let info = fs::read_to_string(run.join("run.json")).unwrap();
    let info = info.replace("\"started\": \"20", "\"started\": \"21");
    fs::write(later.join("run.json"), info).unwrap();
    let rows = fs::read_to_string(run.join("rows.jsonl")).unwrap();
    let rows = rows.replacen(r#"{"kind":"held"}"#, r#"{"kind":"differ"}"#, 1);
    fs::write(later.join("rows.jsonl"), rows).unwrap();
    let text = table(&project);
    let failed = section(&text, "not supported (golden not held)");
    assert!(lists(failed, "qwen3") && failed.contains("differs"), "{text}");
}

#[test]
fn a_type_without_a_golden_in_every_lane_is_not_supported() {
    let project = Project::new();
    project.run(&["verify", "l1/qwen3/"]).expect(0);
    fs::remove_dir_all(project.golden("l1/qwen3/bf16")).unwrap();
    let text = table(&project);
    let none = section(&text, "not supported (no golden)");
    assert!(
        lists(none, "qwen3") && none.contains("l1/qwen3/bf16/window: none committed"),
        "{text}"
    );
}
