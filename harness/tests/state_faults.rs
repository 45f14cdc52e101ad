//! Deliberate faults of what a decoder keeps between calls, with the real binary: each is caught by the
//! check that is there for it, by random operations too, and shows nothing where nothing is kept.

mod support;

use mlx_parity::row::{Outcome, Row};
use rstest::rstest;
use support::Project;

const PLAIN: &str = "meta/matrix/own/llama-f32";
const WINDOW: &str = "meta/matrix/own/gemma3_text-f32";
const RECURRENT: &str = "meta/matrix/own/qwen3_5-f32";
const PACKED: &str = "meta/matrix/kv8/qwen3-f32";

fn rows(case: &str, fault: &str) -> Vec<Row> {
    Project::new().run(&["verify", "--format", "jsonl", case, "--fault", fault]).expect(100).rows()
}

/// Whether the row says that something is wrong.
fn caught(row: &Row) -> bool {
    matches!(row.outcome, Outcome::Differ | Outcome::Error { .. })
}

/// Every fault with a case and the check in it that catches it.
#[rstest]
#[case::off_by_one_window("window-one-narrow", WINDOW, "one-by-one")]
#[case::stale_slot("stale-slot", PLAIN, "trim-4-at-9")]
#[case::trim_of_one_layer("trim-first-layer-only", PLAIN, "trim-4-at-9")]
#[case::rollback_one_short("trim-one-short", PLAIN, "trim-4-at-9")]
#[case::shared_offset("shared-offset", PLAIN, "trim-4-at-9")]
#[case::trim_past_the_window("trim-past-window", WINDOW, "refused-trim-at-33")]
#[case::offset_not_restored("offset-not-restored", PLAIN, "save-at-9")]
#[case::ring_index_lost("ring-index-lost", WINDOW, "save-at-33")]
#[case::state_not_restored("state-not-restored", RECURRENT, "save-at-9")]
#[case::layer_not_loaded("layer-not-loaded", PLAIN, "save-at-9")]
#[case::scale_of_the_wrong_group("scale-of-another-group", PACKED, "save-at-9")]
#[case::unused_slot_counted("unused-slot-counted", PLAIN, "chunk-7")]
#[case::padding_counted("padding-counted", PLAIN, "join-and-leave")]
#[case::padding_counted_in_a_window("padding-counted", WINDOW, "join-and-leave")]
#[case::rows_of_a_batch("rows-swapped", PLAIN, "batch-2")]
#[case::failed_call_counted("refused-call-counted", PLAIN, "refusal-at-20")]
#[case::speculation_one_short("rollback-one-short", WINDOW, "rollback-5-at-33")]
#[case::double_write("failed-step-kept", PLAIN, "failed-step-at-33")]
fn each_fault_of_the_state_is_caught(#[case] fault: &str, #[case] case: &str, #[case] check: &str) {
    let rows = rows(case, fault);
    let row = rows.iter().find(|row| row.id == format!("{case}/{check}")).unwrap();
    assert!(caught(row), "{:?}", row.outcome);
    assert!(row.notes.iter().any(|note| note.contains(fault)), "{:?}", row.notes);
    // Two decoders with the same fault say the same: only another path shows it.
    let again = rows.iter().find(|row| row.id.ends_with("/again")).unwrap();
    assert_eq!(again.outcome, Outcome::Held);
}

/// Random operations find them as well, and a failure names its seed and what led there.
#[rstest]
#[case::off_by_one_window("window-one-narrow", "meta/fuzz/window-quick/from-0001")]
#[case::stale_slot("stale-slot", "meta/fuzz/plain-quick/from-0001")]
#[case::trim_of_one_layer("trim-first-layer-only", "meta/fuzz/plain-quick/from-0001")]
#[case::rollback_one_short("trim-one-short", "meta/fuzz/plain-quick/from-0001")]
#[case::shared_offset("shared-offset", "meta/fuzz/plain-quick/from-0001")]
#[case::trim_past_the_window("trim-past-window", "meta/fuzz/window-quick/from-0001")]
#[case::offset_not_restored("offset-not-restored", "meta/fuzz/plain-quick/from-0001")]
#[case::ring_index_lost("ring-index-lost", "meta/fuzz/window-quick/from-0001")]
#[case::layer_not_loaded("layer-not-loaded", "meta/fuzz/plain-quick/from-0001")]
#[case::unused_slot_counted("unused-slot-counted", "meta/fuzz/plain-quick/from-0001")]
#[case::rows_of_a_batch("rows-swapped", "meta/fuzz/plain-quick/from-0001")]
#[case::failed_call_counted("refused-call-counted", "meta/fuzz/plain-quick/from-0001")]
fn random_operations_catch_each_fault(#[case] fault: &str, #[case] case: &str) {
    let rows = rows(case, fault);
    let first = rows.iter().find(|row| caught(row)).unwrap();
    let seed = first.id.rsplit("seed-").next().unwrap().trim_start_matches('0');
    let said = match &first.outcome {
        Outcome::Error { message } => message.clone(),
        _ => first.notes.join(" "),
    };
    assert!(said.contains(&format!("seed {seed}: ")) && said.contains("prefill"), "{said}");

    // The seed alone gives the same difference.
    let project = Project::new();
    let replay = project.run(&["case", &first.id, "--fault", fault]).expect(100).stdout;
    assert!(replay.contains(&format!("seed {seed}: ")), "{replay}");
}
