//! Tier meta with the real binary: right engines hold, faults of the cache are caught, every key of
//! every config reader is perturbed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{collections::BTreeSet, fs, path::Path};

use mlx_parity::{
    case::{self, Case, Kind},
    meta::Effect,
    model::Registry,
    root::Root,
    row::{Outcome, Row},
};
use mlx_parity_engine::{config::HARMLESS, config_keys, supported_model_types};
use rstest::rstest;
use support::Project;

const GEMMA: &str = "meta/gemma3-1m/bf16/past-window";

fn jsonl<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["verify", "--format", "jsonl", "--tier", "meta"], rest].concat()
}

fn differing(rows: &[Row]) -> Vec<&str> {
    let differ = rows.iter().filter(|row| row.outcome == Outcome::Differ);
    differ.map(|row| row.id.strip_prefix(&row.case).unwrap().trim_start_matches('/')).collect()
}

#[rstest]
#[case::llama("meta/glassllm/f32/story")]
#[case::qwen3("meta/qwen3-1m/bf16/visitor")]
#[case::gemma3(GEMMA)]
fn a_right_engine_holds(#[case] case: &str) {
    let rows = Project::new().run(&jsonl(&[case])).expect(0).rows();
    assert!(rows.len() >= 10);
    assert!(rows.iter().all(|row| row.outcome == Outcome::Held && row.oracle == "self"));
}

#[rstest]
#[case::short_trim("trim-one-short")]
#[case::stale_slot("stale-slot")]
fn a_fault_of_the_cache_is_caught_at_each_trim_and_nowhere_else(
    #[case] fault: &str,
    #[values("meta/glassllm/f32/story", "meta/qwen3-1m/bf16/visitor", GEMMA)] case: &str,
) {
    let rows = Project::new().run(&jsonl(&[case, "--fault", fault])).expect(100).rows();
    let trims: Vec<_> = rows.iter().filter(|row| row.id.contains("/trim-")).collect();
    assert_eq!(differing(&rows).len(), trims.len(), "{:?}", differing(&rows));
    assert!(trims.iter().all(|row| row.outcome == Outcome::Differ));
    let text = mlx_parity::report::failure(trims[0]);
    assert!(text.contains(fault) && text.contains("logits["), "{text}");
}

#[test]
fn what_was_expected_of_a_config_is_said_where_it_fails() {
    let project = Project::new().only_cases(
        "meta",
        r#"
        [[case]]
        name = "wrong"
        model = "qwen3-1m"
        prompt = { ids = [5, 6, 7] }
        why = "each of these must fail"
        config = [
            { keys = ["max_position_embeddings"], value = 9, effect = "moves" },
            { keys = ["rope_theta"], value = 9.0, effect = "same" },
            { keys = ["rms_norm_eps"], value = 0.1, effect = "refused" },
            { keys = ["hidden_act"], value = "gelu", effect = "refused", says = "nonsense" },
            { keys = ["hidden_act"], tag = "loads", value = "gelu", effect = "moves" },
        ]
        "#,
    );
    let rows = project.run(&jsonl(&[])).expect(100).rows();
    let said = |at: usize| rows[at].notes.join(" ");
    assert!(said(0).contains("read by nothing"), "{}", said(0));
    assert!(rows[1].report.is_some());
    assert!(said(2).contains("but the model loads"), "{}", said(2));
    assert!(said(3).contains("names `nonsense`, found: "), "{}", said(3));
    let Outcome::Error { message } = &rows[4].outcome else { panic!("{:?}", rows[4]) };
    assert!(message.contains("`hidden_act`"), "{message}");
}

#[test]
fn a_close_path_is_held_to_the_error_of_the_other() {
    let case = r#"
        [[case]]
        name = "close"
        model = "glassllm-f32"
        prompt = { text = "The old teacher walked into the room." }
        why = "a backend on which no bits are claimed"
        bits-on = ["none"]
        paths = [
            { chunk = 1, relation = "bits" }, { trim = 2, at = 3, relation = "bits" },
            { batch = 2, relation = "bits" },
        ]
    "#;
    let project = Project::new().only_cases("meta", case);
    let rows = project.run(&jsonl(&[])).expect(0).rows();
    assert!(rows.iter().all(|row| row.tolerance.as_ref().is_some_and(|report| report.held)));
    let wrong = project.run(&jsonl(&["--fault", "trim-one-short"])).expect(100).rows();
    assert_eq!(differing(&wrong), ["trim-2-at-3"]);
}

#[test]
fn a_prompt_too_short_for_a_path_is_an_error() {
    let case = r#"
        [[case]]
        name = "short"
        model = "qwen3-1m"
        prompt = { text = "Hello" }
        why = "text is only known to be short when it is tokenized"
        paths = [{ save-at = 50, relation = "bits" }]
    "#;
    let rows = Project::new().only_cases("meta", case).run(&jsonl(&[])).expect(100).rows();
    let Outcome::Error { message } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    assert!(message.contains("needs 51 tokens"), "{message}");
}

fn cases() -> (Root, Vec<Case>) {
    let root = Root::find(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))).unwrap();
    let cases = case::load_all(&root.cases()).unwrap();
    (root, cases)
}

#[test]
fn every_key_of_a_perturbed_reader_has_its_effect_and_so_has_every_harmless_one() {
    let (root, cases) = cases();
    let registry = Registry::load(&root).unwrap();
    let (mut missing, mut walked) = (Vec::new(), 0);
    for model_type in supported_model_types() {
        let (mut found, mut same) = (BTreeSet::new(), BTreeSet::new());
        for case in &cases {
            let Kind::Meta(meta) = &case.kind else { continue };
            let model = registry.get(&meta.model).unwrap();
            // A synthetic model need not have been made yet: its config is where it is made from.
            let source = model.synthetic.as_ref().map(|of| of.dir.clone());
            let dir = source.unwrap_or_else(|| model.dir(&root));
            let config = fs::read_to_string(dir.join("config.json")).unwrap();
            if !config.replace(' ', "").contains(&format!("\"model_type\":\"{model_type}\"")) {
                continue;
            }
            for change in &meta.config {
                found.insert(change.key.as_str());
                if change.effect == Effect::Same {
                    same.insert(change.key.as_str());
                }
            }
        }
        if found.is_empty() {
            continue; // `tests/config_keys.rs` walks every type.
        }
        walked += 1;
        let keys = config_keys(model_type).into_iter().filter(|key| !found.contains(key));
        missing.extend(keys.map(|key| format!("{model_type} {key}")));
        let harmless = HARMLESS.iter().map(|(key, _)| *key).filter(|key| !same.contains(key));
        missing.extend(harmless.map(|key| format!("{model_type} {key} (harmless)")));
    }
    assert!(missing.is_empty(), "not perturbed: {}", missing.join(", "));
    assert!(walked >= 3, "the cases perturb {walked} types");
}
