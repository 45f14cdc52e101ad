//! Packed caches in files.

use std::path::Path;

use mlx_parity_engine::{Composition, Convert, Decoder, EngineError, Model, Route};
use mlx_parity_tensor::Dtype;
use mlx_parity_tensor::safetensors::SafetensorsFile;
use rstest::rstest;

use crate::common::on_mlx_thread;
use crate::{KV4, KV8, ids, synthetic, uniform};

#[rstest]
fn loaded_caches_go_on_as_the_saved_ones(
    #[values("qwen3", "llama-window", "qwen3_5")] name: &'static str,
    #[values(Convert::Empty, Convert::AfterForward, Convert::FromStep(10))] convert: Convert,
    #[values(0, 5, 9, 30)] at: usize,
) {
    on_mlx_thread(move || {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        let model = synthetic(name, Dtype::Bf16);
        let composition = uniform(&model, KV8, convert, Route::Tiled);
        let new = || Decoder::with(&model, 4, &composition).expect("a fitting composition");
        let (ids, mut decoder, mut loaded) = (ids(40), new(), new());
        if at > 0 {
            decoder.prefill(&ids[..at]).expect("a prefill");
        }
        decoder.save_caches(&file).expect("a file");
        loaded.load_caches(&file).expect("the same model and composition");
        assert_eq!((loaded.offset(), loaded.cache_bytes()), (at, decoder.cache_bytes()));
        let want = decoder.prefill(&ids[at..]).expect("the rest");
        assert_eq!(loaded.prefill(&ids[at..]).expect("the rest"), want);
    });
}

fn refusal(model: &Model, composition: &Composition, file: &Path) -> String {
    let mut decoder = Decoder::with(model, 4, composition).expect("a fitting composition");
    match decoder.load_caches(file) {
        Err(error @ EngineError::SavedCaches { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn caches_of_another_composition_are_refused() {
    on_mlx_thread(|| {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        let model = synthetic("qwen3", Dtype::Bf16);
        let composition = uniform(&model, KV8, Convert::Empty, Route::Stock);
        let mut decoder = Decoder::with(&model, 4, &composition).expect("it fits");
        decoder.prefill(&ids(9)).expect("a prefill");
        decoder.save_caches(&file).expect("a file");
        for other in [
            Composition::l1(),
            uniform(&model, KV4, Convert::Empty, Route::Stock),
            uniform(&model, KV8, Convert::AfterForward, Route::Stock),
            uniform(&model, KV8, Convert::Empty, Route::Tiled),
        ] {
            let message = refusal(&model, &other, &file);
            let found = "the composition is kv8g32 kv8g32 kv8g32, from empty, stock attention";
            assert!(message.contains(found), "{message}");
            assert!(message.ends_with(&format!("wanted {other}")), "{message}");
        }
        let saved = SafetensorsFile::open(&file).expect("a file");
        assert_eq!(saved.names().len(), 3 * 6, "words, scales and biases of keys and values");
    });
}
