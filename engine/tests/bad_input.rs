//! What must be refused of caches and calls is refused with a typed error, before MLX sees it, and changes
//! nothing.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Folder, VOCAB, on_mlx_thread};
use mlx_parity_engine::cache::{KvCache, MaskRule, PlainCache, RotatingCache};
use mlx_parity_engine::{Array, Composition, Decoder, EngineError, KvBits};
use mlx_parity_tensor::Dtype;
use rstest::rstest;
use serde_json::{Value, json};

const IDS: [u32; 10] = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7];

/// Rows `[batch, 2, count, width]`.
fn rows(batch: i32, count: i32, width: i32) -> Array {
    let data = vec![0.5_f32; (batch * 2 * count * width) as usize];
    Array::from_slice(&data, &[batch, 2, count, width])
}

/// What is tried of a decoder that holds [`IDS`], and whether what it says is right.
type Bad = (&'static str, fn(&mut Decoder) -> Option<EngineError>, fn(&EngineError) -> bool);

const BAD: [Bad; 8] = [
    ("no ids", |d| d.prefill(&[]).err(), |e| matches!(e, EngineError::EmptyPrompt)),
    ("no rows", |d| d.prefill_batch(&[]).err(), |e| matches!(e, EngineError::EmptyPrompt)),
    ("nothing to verify", |d| d.verify(&[]).err(), |e| matches!(e, EngineError::EmptyPrompt)),
    (
        "an id in a step",
        |d| d.step(VOCAB as u32).err(),
        |e| matches!(e, EngineError::TokenOutOfRange { position: 0, vocab_size: VOCAB, .. }),
    ),
    (
        "an id in a prompt",
        |d| d.prefill(&[1, 2, u32::MAX]).err(),
        |e| matches!(e, EngineError::TokenOutOfRange { id: u32::MAX, position: 2, .. }),
    ),
    (
        "an id to verify",
        |d| d.verify(&[1, VOCAB as u32]).err(),
        |e| matches!(e, EngineError::TokenOutOfRange { position: 1, .. }),
    ),
    (
        "too many rows",
        |d| d.step_batch(&[1, 2]).err(),
        |e| matches!(e, EngineError::BatchSize { found: 2, wanted: 1 }),
    ),
    (
        "a rollback beyond the length",
        |d| d.rollback(11).err(),
        |e| matches!(e, EngineError::NotRevocable { found: 11, .. }),
    ),
];

#[test]
fn a_bad_call_is_refused_and_changes_nothing() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a model");
        let mut straight = Decoder::new(&model, 4);
        straight.prefill(&IDS).expect("a prompt");
        let wanted = straight.step(1).expect("a step");
        for (what, call, right) in BAD {
            let mut decoder = Decoder::new(&model, 4);
            decoder.prefill(&IDS).expect("a prompt");
            let error = call(&mut decoder).expect(what);
            assert!(right(&error), "{what}: {error:?}");
            assert_eq!(decoder.offset(), IDS.len(), "{what}");
            assert_eq!(decoder.step(1).expect("a step"), wanted, "{what}");
        }
    });
}

#[test]
fn a_trim_beyond_the_length_says_what_it_did() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a model");
        let mut decoder = Decoder::new(&model, 4);
        decoder.prefill(&IDS).expect("a prompt");
        assert_eq!(decoder.trim(usize::MAX).expect("a trim"), IDS.len());
        assert_eq!((decoder.offset(), decoder.trim(1).expect("a trim")), (0, 0));
        decoder.prefill(&IDS).expect("it starts again");
    });
}

/// Caches that keep rows, plain and bounded.
fn caches() -> [KvCache; 2] {
    [KvCache::Plain(PlainCache::new()), KvCache::Rotating(RotatingCache::new(8, 0))]
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    on_mlx_thread(|| {
        for mut cache in caches() {
            cache.update(&rows(2, 3, 4), &rows(2, 3, 4)).expect("an update");
            // MLX would write the one sequence into both.
            match cache.update(&rows(1, 1, 4), &rows(1, 1, 4)) {
                Err(EngineError::BatchSize { found: 1, wanted: 2 }) => {}
                other => panic!("{other:?}"),
            }
            let flat = Array::from_slice(&[0.5_f32; 8], &[2, 4]);
            for (keys, values) in
                [(&flat, &flat), (&rows(2, 1, 4), &rows(2, 2, 4)), (&rows(2, 1, 4), &flat)]
            {
                match cache.update(keys, values) {
                    Err(EngineError::CacheForm { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
            cache.update(&rows(2, 1, 4), &rows(2, 1, 4)).expect("it is as before");
            assert_eq!(cache.offset(), 4);
        }
    });
}

#[test]
fn an_update_after_one_that_failed_is_refused() {
    on_mlx_thread(|| {
        for mut cache in caches() {
            cache.update(&rows(1, 3, 4), &rows(1, 3, 4)).expect("an update");
            match cache.update(&rows(1, 1, 5), &rows(1, 1, 5)) {
                Err(EngineError::Op { .. }) => {}
                other => panic!("{other:?}"),
            }
            match cache.update(&rows(1, 1, 4), &rows(1, 1, 4)) {
                Err(EngineError::CacheForm { found, .. }) => assert!(found.contains("failed")),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn windows_and_sizes_that_hold_nothing_are_refused() {
    on_mlx_thread(|| {
        let rule = MaskRule::causal(1, 4).expect("a rule");
        assert!(matches!(rule.within_window(0, 0), Err(EngineError::MaskRule { .. })));
        let mut folder = Folder::gemma3_text(Dtype::F32);
        folder.config["sliding_window"] = json!(0);
        let message = folder.load().expect_err("a refusal").to_string();
        assert!(message.contains("sliding_window"), "{message}");
        let model = Folder::llama(Dtype::F32).load().expect("a model");
        for size in [0, 4] {
            match Decoder::bounded(&model, 4, size) {
                Err(EngineError::MaskRule { what: "max_kv_size", .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}

/// The folder's heads are 16 wide.
#[rstest]
#[case::group_wider_than_a_head(8, 32)]
#[case::bits(7, 64)]
#[case::no_bits(0, 64)]
#[case::no_group(4, 0)]
#[case::negative(-4, 64)]
fn packing_that_a_head_cannot_carry_is_refused(#[case] bits: i32, #[case] group: i32) {
    on_mlx_thread(move || {
        let model = Folder::llama(Dtype::F32).load().expect("a model");
        let composition = Composition::uniform(&model, KvBits { bits, group });
        match Decoder::with(&model, 4, &composition) {
            Err(EngineError::Composition { .. }) => {}
            other => panic!("{other:?}"),
        }
    });
}

/// gpt2 of the goldens, which has a row for each of 128 positions.
fn gpt2() -> Folder {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/synthetic/gpt2");
    let json = |file| -> Value {
        let text = std::fs::read_to_string(dir.join(file)).expect("a file of goldens/synthetic");
        serde_json::from_str(&text).expect("JSON")
    };
    let mut folder = Folder { config: json("config.json"), tensors: BTreeMap::new() };
    for tensor in json("tensors.json")["tensors"].as_array().expect("tensors") {
        let shape = tensor["shape"].as_array().expect("a shape").iter();
        let shape: Vec<usize> =
            shape.map(|extent| extent.as_u64().expect("an extent") as usize).collect();
        folder.add(tensor["name"].as_str().expect("a name"), &shape, Dtype::F32);
    }
    folder
}

#[test]
fn more_tokens_than_positions_are_refused_before_they_run() {
    on_mlx_thread(|| {
        let model = gpt2().load().expect("a model");
        let refused = |result: Option<EngineError>, tokens: usize| match result {
            Some(EngineError::PastContext { found, limit: 128 }) => assert_eq!(found, tokens),
            other => panic!("{other:?}"),
        };
        let mut decoder = Decoder::new(&model, 200);
        refused(decoder.prefill(&[1; 129]).err(), 129);
        decoder.prefill(&[1; 127]).expect("there is room");
        refused(decoder.prefill(&[1; 2]).err(), 129);
        refused(decoder.verify(&[1; 2]).err(), 129);
        decoder.step(1).expect("the last position");
        refused(decoder.step(1).err(), 129);
        assert_eq!((decoder.offset(), decoder.trim(1).expect("a trim")), (128, 1));
        decoder.step(1).expect("there is room again");
    });
}
