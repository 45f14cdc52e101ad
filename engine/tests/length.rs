//! Sequences that cross the length at which longrope changes its factors.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::{Folder, on_mlx_thread};
use mlx_parity_engine::{Decoder, EngineError, LoadOptions, Model};
use mlx_parity_tensor::Dtype;
use serde_json::json;

const LIMIT: usize = 8;
const CHUNK: usize = 5;

fn folder(short: f64, long: f64) -> Folder {
    let mut folder = Folder::llama(Dtype::F32);
    folder.config["max_position_embeddings"] = json!(32);
    folder.config["rope_scaling"] = json!({
        "type": "longrope", "original_max_position_embeddings": LIMIT,
        "short_factor": short, "long_factor": long,
    });
    folder
}

fn ids(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 7 + 3) % 40).collect()
}

#[test]
fn a_step_across_is_as_if_the_length_had_been_known() {
    on_mlx_thread(|| {
        let model = folder(1.0, 4.0).load().expect("a model");
        let ids = ids(12);
        let mut stepped = Decoder::new(&model, CHUNK);
        stepped.prefill(&ids[..6]).expect("logits");
        for at in 6..ids.len() {
            let found = stepped.step(ids[at]).expect("logits");
            let mut whole = Decoder::new(&model, CHUNK);
            let all = whole.prefill(&ids[..=at]).expect("logits");
            if at == LIMIT {
                assert_eq!(found, all.rows(at..at + 1), "the first step past the limit");
            }
            let distance = common::distance(&found, &all.rows(at..at + 1));
            assert!(distance <= 1e-5, "after {at} tokens: {distance}");
        }
        assert_eq!(stepped.offset(), ids.len());
    });
}

#[test]
fn each_side_reads_its_own_factors_only() {
    on_mlx_thread(|| {
        let run = |short, long, count| {
            let model = folder(short, long).load().expect("a model");
            Decoder::new(&model, CHUNK).prefill(&ids(count)).expect("logits")
        };
        let limit = LIMIT as u32;
        assert_eq!(run(1.5, 4.0, limit), run(1.5, 1.5, limit));
        assert_ne!(run(1.5, 4.0, limit), run(4.0, 4.0, limit));
        assert_eq!(run(1.5, 4.0, limit + 1), run(4.0, 4.0, limit + 1));
        assert_ne!(run(1.5, 4.0, limit + 1), run(1.5, 1.5, limit + 1));
    });
}

#[test]
fn a_trim_goes_back_across() {
    on_mlx_thread(|| {
        let model = folder(1.0, 4.0).load().expect("a model");
        let ids = ids(10);
        let mut trimmed = Decoder::new(&model, CHUNK);
        trimmed.prefill(&ids).expect("logits");
        assert_eq!(trimmed.trim(5).expect("plain caches"), 5);
        let found = trimmed.step(ids[5]).expect("logits");
        let mut whole = Decoder::new(&model, CHUNK);
        let all = whole.prefill(&ids[..6]).expect("logits");
        assert_eq!(found, all.rows(5..6));
    });
}

#[test]
fn loaded_caches_do_not_cross() {
    on_mlx_thread(|| {
        let folder = folder(1.0, 4.0);
        let dir = folder.write();
        let model = Model::load(dir.path(), &LoadOptions::default()).expect("a model");
        let ids = ids(10);
        let file = dir.path().join("caches.safetensors");
        let mut decoder = Decoder::new(&model, CHUNK);
        decoder.prefill(&ids[..7]).expect("logits");
        decoder.save_caches(&file).expect("a file");
        let mut loaded = Decoder::new(&model, CHUNK);
        loaded.load_caches(&file).expect("caches");
        let step = loaded.step(ids[7]).expect("up to the limit");
        assert_eq!(step, decoder.step(ids[7]).expect("logits"));
        let error = loaded.step(ids[8]).expect_err("its ids are not known");
        assert!(matches!(error, EngineError::LostIds { limit: LIMIT }), "{error}");
    });
}
