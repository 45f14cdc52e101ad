//! Dedicated networks against what they stand beside: `MiniCPM5` against the universal llama, and
//! `qwen3_5`'s recurrent state against calls that were cut, kept or put side by side.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Folder, distance, on_mlx_thread};
use mlx_parity_engine::{Decoder, EngineError, LoadOptions, Model, Rung};
use mlx_parity_tensor::safetensors::SafetensorsFile;
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;
use serde_json::Value;

const IDS: [u32; 12] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8];

/// A folder with the config of a synthetic model and no tensors yet.
fn synthetic(name: &str) -> Folder {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/synthetic").join(name);
    let text = std::fs::read_to_string(path.join("config.json")).expect("a synthetic model");
    let config: Value = serde_json::from_str(&text).expect("JSON");
    Folder { config, tensors: BTreeMap::new() }
}

fn minicpm5(dtype: Dtype) -> Folder {
    let mut folder = synthetic("llama-minicpm5");
    folder.add("model.embed_tokens.weight", &[256, 96], dtype);
    folder.add("lm_head.weight", &[256, 96], dtype);
    folder.add("model.norm.weight", &[96], dtype);
    for layer in (0..3).map(|i| format!("model.layers.{i}")) {
        for (name, shape) in [
            ("input_layernorm", vec![96]),
            ("post_attention_layernorm", vec![96]),
            ("self_attn.q_proj", vec![128, 96]),
            ("self_attn.k_proj", vec![16, 96]),
            ("self_attn.v_proj", vec![16, 96]),
            ("self_attn.o_proj", vec![96, 128]),
            ("mlp.gate_proj", vec![288, 96]),
            ("mlp.up_proj", vec![288, 96]),
            ("mlp.down_proj", vec![96, 288]),
        ] {
            folder.add(&format!("{layer}.{name}.weight"), &shape, dtype);
        }
    }
    folder
}

fn logits(folder: &Folder, rung: Option<Rung>) -> (Rung, Vec<HostTensor>) {
    let options = LoadOptions { rung, ..LoadOptions::default() };
    let model = Model::load(folder.write().path(), &options).expect("a model");
    let mut decoder = Decoder::new(&model, 5);
    let mut all = vec![decoder.prefill(&IDS).expect("a prefill")];
    all.extend((0..6).map(|id| decoder.step(id).expect("a step")));
    (model.rung(), all)
}

#[rstest]
fn minicpm5_gives_the_bits_of_the_universal_llama(#[values(Dtype::F32, Dtype::Bf16)] dtype: Dtype) {
    on_mlx_thread(move || {
        let folder = minicpm5(dtype);
        let (chosen, ours) = logits(&folder, None);
        let (other, theirs) = logits(&folder, Some(Rung::Universal));
        assert_eq!((chosen, other), (Rung::Dedicated, Rung::Universal));
        assert_eq!(ours, theirs);
    });
}

#[test]
fn another_shape_is_left_to_the_universal_llama() {
    on_mlx_thread(|| {
        let mut folder = minicpm5(Dtype::F32);
        folder.config["rms_norm_eps"] = serde_json::json!(1e-5);
        assert_eq!(logits(&folder, None).0, Rung::Universal);
        let options = LoadOptions { rung: Some(Rung::Dedicated), ..LoadOptions::default() };
        let refused = Model::load(folder.write().path(), &options);
        assert!(matches!(refused, Err(EngineError::NoSuchRung { .. })), "{refused:?}");
    });
}

#[test]
fn a_recurrent_state_survives_a_file_bit_by_bit() {
    on_mlx_thread(|| {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        let model = Folder::qwen3_5(Dtype::Bf16).load().expect("a model");
        let mut decoder = Decoder::new(&model, 5);
        decoder.prefill(&IDS).expect("a prefill");
        decoder.save_caches(&file).expect("a file");
        let wanted = decoder.step(7).expect("a step");

        let mut loaded = Decoder::new(&model, 5);
        loaded.load_caches(&file).expect("caches");
        assert_eq!(loaded.offset(), IDS.len());
        assert_eq!(loaded.step(7).expect("a step"), wanted);
        let saved = SafetensorsFile::open(&file).expect("a file");
        let memory = saved.tensor("layers.0.memory").expect("a memory");
        assert_eq!((memory.dtype(), memory.shape()), (Dtype::F32, &[1, 4, 16, 32][..]));
        let conv = saved.tensor("layers.0.conv").expect("inputs");
        assert_eq!((conv.dtype(), conv.shape()), (Dtype::Bf16, &[1, 3, 192][..]));
    });
}

#[test]
fn an_empty_recurrent_state_survives_a_file() {
    on_mlx_thread(|| {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        let model = Folder::qwen3_5(Dtype::F32).load().expect("a model");
        Decoder::new(&model, 5).save_caches(&file).expect("a file");
        let mut loaded = Decoder::new(&model, 5);
        loaded.load_caches(&file).expect("caches");
        let mut fresh = Decoder::new(&model, 5);
        assert_eq!(loaded.prefill(&IDS).expect("logits"), fresh.prefill(&IDS).expect("logits"));
    });
}

#[rstest]
#[case::no_memory("layers.1.memory", None)]
#[case::narrow_memory("layers.1.memory", Some((Dtype::F32, vec![1, 4, 16, 16])))]
#[case::half_memory("layers.1.memory", Some((Dtype::Bf16, vec![1, 4, 16, 32])))]
#[case::long_conv("layers.1.conv", Some((Dtype::F32, vec![1, 4, 192])))]
#[case::two_rows("layers.1.conv", Some((Dtype::F32, vec![2, 3, 192])))]
fn a_recurrent_state_that_does_not_fit_is_refused(
    #[case] name: &'static str,
    #[case] instead: Option<(Dtype, Vec<usize>)>,
) {
    on_mlx_thread(move || {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        let model = Folder::qwen3_5(Dtype::F32).load().expect("a model");
        let mut decoder = Decoder::new(&model, 5);
        decoder.prefill(&IDS).expect("a prefill");
        decoder.save_caches(&file).expect("a file");
        let saved = SafetensorsFile::open(&file).expect("a file");
        let mut tensors: BTreeMap<String, HostTensor> = saved
            .names()
            .map(|name| (name.to_owned(), saved.tensor(name).expect("a tensor")))
            .collect();
        tensors.remove(name);
        if let Some((dtype, shape)) = instead {
            tensors.insert(name.to_owned(), HostTensor::zeros(dtype, shape).expect("zeros"));
        }
        let metadata = saved.metadata().clone();
        let tensors = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
        mlx_parity_tensor::safetensors::write(&file, tensors, &metadata).expect("a file");
        let message = decoder.load_caches(&file).expect_err("refused").to_string();
        assert!(message.contains("layers.1."), "{message}");
        decoder.step(7).expect("the decoder is as it was");
    });
}

#[test]
fn a_recurrent_state_refuses_a_trim_and_stays_as_it_was() {
    on_mlx_thread(|| {
        let model = Folder::qwen3_5(Dtype::F32).load().expect("a model");
        let [mut asked, mut untouched] = [Decoder::new(&model, 5), Decoder::new(&model, 5)];
        asked.prefill(&IDS).expect("a prefill");
        untouched.prefill(&IDS).expect("a prefill");
        match asked.trim(1) {
            Err(error @ EngineError::NotTrimmable { layer: 0, seen: 12, recurrent: true }) => {
                assert!(error.to_string().contains("what they add up to"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(asked.step(7).expect("a step"), untouched.step(7).expect("a step"));
    });
}

#[test]
fn each_row_of_a_batch_has_a_memory_of_its_own() {
    on_mlx_thread(|| {
        let model = Folder::qwen3_5(Dtype::F32).load().expect("a model");
        let rows: [&[u32]; 2] = [&IDS[..6], &IDS[6..]];
        let mut batch = Decoder::new(&model, 4);
        let together = batch.prefill_batch(&rows).expect("a prefill");
        let next = batch.step_batch(&[7, 8]).expect("a step");
        let row_of = |i: usize| {
            let row = next.bytes().len() / 2;
            let bytes = next.bytes()[i * row..(i + 1) * row].to_vec();
            HostTensor::new(next.dtype(), [1, next.shape()[1]], bytes).expect("a row")
        };
        for (i, row) in rows.iter().enumerate() {
            let mut alone = Decoder::new(&model, 4);
            let logits = alone.prefill(row).expect("a prefill");
            assert!(distance(&logits, &together[i]) < 1e-5);
            assert!(distance(&alone.step([7, 8][i]).expect("a step"), &row_of(i)) < 1e-5);
        }
    });
}

#[rstest]
fn original_checkpoints_hold_norms_less_one(#[values(Dtype::F32, Dtype::Bf16)] dtype: Dtype) {
    on_mlx_thread(move || {
        let ours = Folder::qwen3_5(dtype);
        let mut original = Folder { config: ours.config.clone(), tensors: BTreeMap::new() };
        let mut rounded = Folder { config: ours.config.clone(), tensors: BTreeMap::new() };
        for (name, tensor) in &ours.tensors {
            let old = name.replace("language_model.model", "model.language_model");
            let offset =
                ["layernorm.weight", "model.norm.weight", "q_norm.weight", "k_norm.weight"]
                    .iter()
                    .any(|suffix| name.ends_with(suffix));
            let (stored, loaded) = if offset {
                let shape = tensor.shape().to_vec();
                let less: Vec<f64> = tensor.to_f64().iter().map(|value| value - 1.0).collect();
                let less = HostTensor::from_f64_as(dtype, &shape[..], &less).expect("floats");
                let plus: Vec<f64> = less.to_f64().iter().map(|value| value + 1.0).collect();
                (less, HostTensor::from_f64_as(dtype, &shape[..], &plus).expect("floats"))
            } else if name.ends_with("conv1d.weight") {
                // One channel of input each: the taps lie in the same order either way.
                let bytes = tensor.bytes().to_vec();
                (HostTensor::new(dtype, [192, 1, 4], bytes).expect("taps"), tensor.clone())
            } else {
                (tensor.clone(), tensor.clone())
            };
            original.tensors.insert(old, stored);
            rounded.tensors.insert(name.clone(), loaded);
        }
        original.add("mtp.layers.0.conv1d.weight", &[2, 1, 4], dtype);
        original.add("model.visual.patch_embed.weight", &[3, 3], dtype);
        assert_eq!(logits(&original, None).1, logits(&rounded, None).1);
    });
}
