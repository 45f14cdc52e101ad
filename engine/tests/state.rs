//! What is done to caches between calls: trimmed, saved, loaded, filled with several sequences.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Folder, VOCAB, distance, on_mlx_thread};
#[cfg(debug_assertions)]
use mlx_parity_engine::Fault;
use mlx_parity_engine::cache::{KvCache, PlainCache, RotatingCache};
use mlx_parity_engine::{Array, Decoder, EngineError, LoadOptions, Model, config_keys};
use mlx_parity_tensor::safetensors::{self, SafetensorsFile};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

const IDS: [u32; 21] = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6, 2, 6, 4, 33, 8, 3];
/// Of the gemma folder.
const WINDOW: usize = 8;

fn models() -> [Model; 3] {
    [Folder::llama(Dtype::F32), Folder::qwen3(Dtype::F32), Folder::gemma3_text(Dtype::F32)]
        .map(|folder| folder.load().expect("a good folder"))
}

fn rows(count: i32) -> Array {
    let data: Vec<f32> = (0..count * 8).map(|value| value as f32).collect();
    Array::from_slice(&data, &[1, 2, count, 4])
}

#[test]
fn a_trim_says_what_it_did() {
    on_mlx_thread(|| {
        for mut cache in
            [KvCache::Plain(PlainCache::new()), KvCache::Rotating(RotatingCache::new(8, 0))]
        {
            cache.update(&rows(6), &rows(6)).expect("an update");
            assert_eq!((cache.trim(2), cache.offset()), (2, 4));
            assert_eq!((cache.trim(9), cache.offset()), (4, 0), "no more than there is");
            assert_eq!(cache.trim(1), 0);
        }
        let mut wrapped = KvCache::Rotating(RotatingCache::new(8, 0));
        wrapped.update(&rows(8), &rows(8)).expect("an update");
        assert!(!wrapped.is_trimmable());
        assert_eq!((wrapped.trim(1), wrapped.offset()), (0, 8));
    });
}

#[test]
fn a_trimmed_decoder_goes_on_as_if_nothing_had_been() {
    on_mlx_thread(|| {
        for model in models() {
            let mut straight = Decoder::new(&model, 100);
            straight.prefill(&IDS[..4]).expect("a prefill");
            let want = straight.prefill(&IDS[4..]).expect("the rest");
            let mut decoder = Decoder::new(&model, 100);
            decoder.prefill(&IDS[..4]).expect("a prefill");
            decoder.prefill(&[1, 2, 3]).expect("a detour");
            assert_eq!(decoder.trim(3).expect("inside the window"), 3);
            assert_eq!(decoder.offset(), 4);
            assert_eq!(decoder.prefill(&IDS[4..]).expect("the rest"), want);
        }
    });
}

#[test]
fn a_wrapped_window_refuses_a_trim_and_stays_as_it_was() {
    on_mlx_thread(|| {
        let [llama, _, gemma] = models();
        let mut decoder = Decoder::new(&gemma, 100);
        decoder.prefill(&IDS[..WINDOW]).expect("a prefill");
        match decoder.trim(1) {
            Err(EngineError::NotTrimmable { layer: 0, seen: WINDOW, recurrent: false }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(decoder.offset(), WINDOW);
        let mut plain = Decoder::new(&llama, 100);
        plain.prefill(&IDS).expect("a prefill");
        assert_eq!(plain.trim(100).expect("a plain cache forgets all"), IDS.len());
    });
}

#[rstest]
fn each_row_of_a_batch_is_the_row_alone(#[values(1, 2, 3, 4)] batch: usize) {
    on_mlx_thread(move || {
        for model in models() {
            let prompts: Vec<Vec<u32>> = (0..batch)
                .map(|row| {
                    let mut ids = IDS.to_vec();
                    ids.rotate_left(row);
                    ids
                })
                .collect();
            let mut together = Decoder::new(&model, 6);
            let heads: Vec<&[u32]> = prompts.iter().map(|ids| &ids[..20]).collect();
            let prefill = together.prefill_batch(&heads).expect("a prefill");
            let last: Vec<u32> = prompts.iter().map(|ids| ids[20]).collect();
            let step = together.step_batch(&last).expect("a step");
            assert_eq!(step.shape(), [batch, VOCAB]);
            for (row, ids) in prompts.iter().enumerate() {
                let mut alone = Decoder::new(&model, 6);
                let want = alone.prefill(&ids[..20]).expect("a prefill");
                assert!(distance(&want, &prefill[row]) <= 1e-5, "{}", model.architecture());
                let want = alone.step(ids[20]).expect("a step");
                assert!(distance(&want, &step.rows(row..row + 1)) <= 1e-5);
            }
        }
    });
}

#[test]
fn bad_batches_are_refused_before_they_run() {
    on_mlx_thread(|| {
        let [model, ..] = models();
        let mut decoder = Decoder::new(&model, 8);
        assert!(matches!(decoder.prefill_batch(&[]), Err(EngineError::EmptyPrompt)));
        match decoder.prefill_batch(&[&[1, 2], &[1]]) {
            Err(EngineError::UnequalRows { row: 1, found: 1, wanted: 2 }) => {}
            other => panic!("{other:?}"),
        }
        decoder.prefill_batch(&[&[1, 2], &[3, 4]]).expect("two rows");
        match decoder.step(1) {
            Err(EngineError::BatchSize { found: 1, wanted: 2 }) => {}
            other => panic!("{other:?}"),
        }
        decoder.step_batch(&[1, 2]).expect("the decoder is still good");
    });
}

#[rstest]
#[case::empty(0)]
#[case::inside_the_window(5)]
#[case::full(WINDOW)]
#[case::past_it(13)]
fn loaded_caches_go_on_as_the_saved_ones(#[case] at: usize) {
    on_mlx_thread(move || {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        for model in models() {
            let mut decoder = Decoder::new(&model, 3);
            if at > 0 {
                decoder.prefill_batch(&[&IDS[..at], &IDS[1..=at]]).expect("a prefill");
            }
            decoder.save_caches(&file).expect("a file");
            let mut loaded = Decoder::new(&model, 3);
            loaded.load_caches(&file).expect("the same model");
            assert_eq!(loaded.offset(), at);
            let rest: [&[u32]; 2] = [&IDS[at..], &IDS[..IDS.len() - at]];
            let want = decoder.prefill_batch(&rest).expect("the rest");
            assert_eq!(loaded.prefill_batch(&rest).expect("the rest"), want);
        }
    });
}

#[cfg(debug_assertions)]
#[rstest]
fn each_fault_of_the_caches_shows_after_a_trim_and_only_there(
    #[values("trim-one-short", "stale-slot")] name: &'static str,
) {
    on_mlx_thread(move || {
        let fault = Some(Fault::parse(name).expect("a debug build"));
        for folder in
            [Folder::llama(Dtype::F32), Folder::qwen3(Dtype::F32), Folder::gemma3_text(Dtype::F32)]
        {
            let answer = |fault, trim: bool| {
                let model = Model::load(
                    folder.write().path(),
                    &LoadOptions { fault, ..LoadOptions::default() },
                );
                let model = model.expect("a model");
                let mut decoder = Decoder::new(&model, 1);
                decoder.prefill(&IDS[..4]).expect("a prefill");
                if trim {
                    decoder.prefill(&[1, 2, 3]).expect("a detour");
                    assert_eq!(decoder.trim(3).expect("inside the window"), 3, "it lies");
                }
                decoder.prefill(&IDS[4..7]).expect("the rest")
            };
            let good = answer(None, true);
            assert_eq!(answer(None, false), good);
            assert_eq!(answer(fault, false), good);
            let off = distance(&good, &answer(fault, true));
            assert!(off > 1e-4 && off.is_finite(), "{name}: {off}");
        }
    });
}

/// The message with which a decoder of `model` refuses the file, after which it is as before.
fn refusal(model: &Model, file: &Path) -> String {
    let mut decoder = Decoder::new(model, 3);
    match decoder.load_caches(file) {
        Err(error @ EngineError::SavedCaches { .. }) => {
            assert_eq!(decoder.offset(), 0);
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn caches_of_another_model_are_refused() {
    on_mlx_thread(|| {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        let [llama, _, gemma] = models();
        let mut decoder = Decoder::new(&llama, 3);
        decoder.prefill(&IDS).expect("a prefill");
        decoder.save_caches(&file).expect("a file");
        assert!(refusal(&gemma, &file).contains("the model is sha256:"));
        // The same shapes, trained otherwise.
        let mut other = Folder::llama(Dtype::F32);
        let name = "model.layers.1.mlp.up_proj.weight";
        let mut bytes = other.tensors[name].bytes().to_vec();
        bytes[0] ^= 1;
        let shape = other.tensors[name].shape().to_vec();
        let changed = HostTensor::new(Dtype::F32, shape, bytes).expect("the same shape");
        other.tensors.insert(name.to_owned(), changed);
        assert!(refusal(&other.load().expect("a model"), &file).contains("the model is sha256:"));
        // A copy in another folder is the same model.
        let copy = Folder::llama(Dtype::F32).load().expect("a copy");
        Decoder::new(&copy, 3).load_caches(&file).expect("a copy is the same model");
    });
}

/// Metadata and tensors of a file of caches.
type Parts = (BTreeMap<String, String>, BTreeMap<String, HostTensor>);

/// A change that makes a file wrong, and what its refusal says.
type Spoilt = (fn(&mut Parts), &'static str);

#[test]
fn a_file_that_contradicts_itself_is_refused() {
    on_mlx_thread(|| {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        let [_, _, model] = models();
        let mut decoder = Decoder::new(&model, 30);
        decoder.prefill(&IDS[..5]).expect("a prefill");
        decoder.save_caches(&file).expect("a file");
        let saved = SafetensorsFile::open(&file).expect("a file");
        let tensors =
            saved.names().map(|name| (name.to_owned(), saved.tensor(name).expect("a tensor")));
        let good: Parts = (saved.metadata().clone(), tensors.collect());
        let spoilt: [Spoilt; 8] = [
            (|parts| drop(parts.0.insert("format".into(), "other".into())), "format is other"),
            (|parts| drop(parts.0.remove("layers.1")), "number of layers is 1, wanted 2"),
            (|parts| drop(parts.0.insert("layers.0".into(), "{}".into())), "layers.0 is {}"),
            (
                |parts| {
                    let text = parts.0["layers.0"].replace("\"max_size\":8", "\"max_size\":9");
                    parts.0.insert("layers.0".into(), text);
                },
                "max_size: 9",
            ),
            (
                |parts| drop(parts.0.insert("layers.1".into(), "{\"plain\":4}".into())),
                "offset of layer 1 is 4, wanted 5",
            ),
            (
                |parts| drop(parts.0.insert("layers.1".into(), "{\"plain\":999}".into())),
                "counters that arrays of [1, 2, 256, 16] can have",
            ),
            (
                |parts| {
                    let half = HostTensor::zeros(Dtype::Bf16, [1, 2, 256, 16]).expect("zeros");
                    parts.1.insert("layers.1.keys".into(), half);
                },
                "dtype of layers.1.keys is bf16, wanted f32",
            ),
            (
                |parts| {
                    let narrow = HostTensor::zeros(Dtype::F32, [1, 2, 256, 8]).expect("zeros");
                    parts.1.insert("layers.1.values".into(), narrow);
                },
                "shape of layers.1.values is [1, 2, 256, 8]",
            ),
        ];
        for (spoil, wanted) in spoilt {
            let mut parts = good.clone();
            spoil(&mut parts);
            let tensors = parts.1.iter().map(|(name, tensor)| (name.clone(), tensor));
            safetensors::write(&file, tensors, &parts.0).expect("a file");
            let message = refusal(&model, &file);
            assert!(message.contains(wanted), "{message}");
        }
    });
}

#[test]
fn the_list_of_keys_is_what_the_readers_take() {
    on_mlx_thread(|| {
        for (name, folder) in [
            ("llama", Folder::llama(Dtype::F32)),
            ("qwen3", Folder::qwen3(Dtype::F32)),
            ("gemma3_text", Folder::gemma3_text(Dtype::F32)),
        ] {
            let keys = config_keys(name);
            assert!(keys.contains(&"model_type") && keys.contains(&"quantization"), "{keys:?}");
            let dir = folder.write();
            for key in folder.config.as_object().expect("an object").keys() {
                assert!(keys.contains(&key.as_str()), "{name}: {key}");
            }
            Model::load(dir.path(), &LoadOptions::default()).expect("a good folder");
        }
        assert!(config_keys("unheard-of").is_empty());
    });
}
