//! Tier L2 with the real binary: an answer belongs to its composition, and is compared with no other's.

mod support;

use std::{collections::BTreeSet, fs};

use mlx_parity::{
    golden::Golden,
    row::{NotRunKind, Outcome},
};
use rstest::rstest;
use support::Project;

const CASES: &str = "goldens/cases/l2/llama-kv.toml";
const KV8: &str = "l2/llama-kv/bf16/kv8-empty";

fn jsonl(case: &str) -> [&str; 4] {
    ["verify", "--format", "jsonl", case]
}

#[test]
fn rows_name_their_composition_and_the_last_compares_the_caches() {
    let rows = Project::new().run(&jsonl(KV8)).expect(0).rows();
    assert_eq!(rows.len(), 26);
    assert!(rows.iter().all(|row| row.oracle == "mlx-optiq"));
    assert!(rows.iter().all(|row| row.composition.as_deref() == Some("kv8 g32 from empty")));
    assert!(rows.last().unwrap().id.ends_with("/kv8-empty/composition"));
}

#[rstest]
#[case::packed("drop-last-key", KV8)]
#[case::tiled("drop-last-key", "l2/llama-kv/bf16/kv8-tiled")]
#[case::ring("drop-last-key", "l2/gemma3_text/f32/kv8-wrapped")]
#[case::rope("rope-base", "l2/llama-kv/bf16/lora-kv8")]
fn a_wrong_engine_fails_and_the_replay_line_repeats_the_fault(
    #[case] fault: &str,
    #[case] case: &str,
) {
    let arguments = [&jsonl(case)[..], &["--fault", fault]].concat();
    let rows = Project::new().run(&arguments).expect(100).rows();
    let first = rows.iter().find(|row| row.outcome == Outcome::Differ).unwrap();
    let text = mlx_parity::report::failure(first);
    let composition = first.composition.as_deref().unwrap();
    assert!(text.contains(&format!("composition {composition}")), "{text}");
    let replay = format!("replay   mlx-parity case {} --explain --fault {fault}", first.id);
    assert!(text.contains(&replay), "{text}");
}

#[test]
fn explain_asks_the_oracle_of_the_composition() {
    let project = Project::new();
    let ran = project.run(&["case", KV8, "--explain", "--fault", "rope-base"]).expect(100);
    let wanted = "first difference at layers.0.self_attn.q_rope";
    assert!(ran.stdout.contains(wanted), "{}", ran.stdout);
}

#[rstest]
#[case::bits(
    "bits = 8, group = 32 } }, convert = \"empty\" }",
    "bits = 4, group = 32 } }, convert = \"empty\" }"
)]
#[case::time("convert = \"empty\"", "convert = \"after-forward\"")]
fn a_golden_of_another_composition_is_not_compared_with(#[case] from: &str, #[case] to: &str) {
    let project = Project::new();
    let path = project.path().join(CASES);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let rows = project.run(&jsonl(KV8)).expect(101).rows();
    let Outcome::NotRun { kind, message } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    assert_eq!(*kind, NotRunKind::GoldenUnfit);
    assert!(message.contains("has changed since"), "{message}");
}

#[test]
fn a_manifest_of_another_composition_is_not_believed() {
    let project = Project::new();
    let path = project.golden(KV8).join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("from empty", "from step 7")).unwrap();
    let rows = project.run(&jsonl(KV8)).expect(101).rows();
    let Outcome::NotRun { message, .. } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    let wanted = "conversion `from step 7`, the case asks for `from empty`";
    assert!(message.contains(wanted), "{message}");
}

#[test]
fn goldens_are_compared_across_compositions_only_when_that_is_asked_for() {
    let project = Project::new();
    let [tiled, prefill] = ["kv8-tiled", "kv8-tiled-prefill"]
        .map(|name| project.golden(&format!("l2/llama-kv/bf16/{name}")));
    let (tiled, prefill) = (tiled.to_str().unwrap(), prefill.to_str().unwrap());
    let refused = project.run(&["diff", tiled, prefill]).expect(2);
    assert!(refused.stderr.contains("in different compositions"), "{}", refused.stderr);
    assert!(refused.stderr.contains("stock at L = 1"), "{}", refused.stderr);
    project.run(&["diff", tiled, prefill, "--across-compositions"]).expect(100);
    project.run(&["diff", tiled, tiled]).expect(0);
    let file = format!("{prefill}/tensors.safetensors");
    project.run(&["diff", tiled, &file]).expect(2);
}

/// Recipes that are all called kv8, of one model and one prompt.
#[test]
fn recipes_of_one_name_give_different_logits() {
    let project = Project::new();
    let digest = |name: &str| {
        let golden = Golden::open(&project.golden(&format!("l2/llama-kv/bf16/{name}"))).unwrap();
        golden.manifest.tensors["decode.logits"].digest.clone()
    };
    for names in [
        &["kv8-empty", "kv8-after-forward", "kv8-from-step", "lora-kv8"][..],
        &["kv8-tiled", "kv8-tiled-prefill"],
    ] {
        let digests: BTreeSet<_> = names.iter().map(|name| digest(name)).collect();
        assert_eq!(digests.len(), names.len(), "{names:?}");
    }
}
