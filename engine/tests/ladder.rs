//! Which network runs a model, and that it does not matter which.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::{Folder, on_mlx_thread};
use mlx_parity_engine::{Decoder, EngineError, LoadOptions, Model, Rung};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;
use serde_json::json;

const IDS: [u32; 14] = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4];

fn load(folder: &Folder, rung: Option<Rung>) -> Result<Model, EngineError> {
    Model::load(folder.write().path(), &LoadOptions { rung, ..LoadOptions::default() })
}

/// Logits of a prompt in chunks, and of two steps.
fn logits(model: &Model) -> Vec<HostTensor> {
    let mut decoder = Decoder::new(model, 5);
    let prefill = decoder.prefill(&IDS[..12]).expect("a prefill");
    vec![prefill, decoder.step(IDS[12]).expect("a step"), decoder.step(IDS[13]).expect("a step")]
}

#[rstest]
fn the_dedicated_qwen3_and_the_universal_one_give_the_same_bits(
    #[values(Dtype::F32, Dtype::Bf16, Dtype::F16)] dtype: Dtype,
    #[values(true, false)] tied: bool,
) {
    on_mlx_thread(move || {
        let mut folder = Folder::qwen3(dtype);
        folder.config["tie_word_embeddings"] = json!(tied);
        if !tied {
            folder.add("lm_head.weight", &[common::VOCAB, common::HIDDEN], dtype);
        }
        let dedicated = load(&folder, None).expect("a good folder");
        let universal = load(&folder, Some(Rung::Universal)).expect("a good folder");
        assert_eq!(dedicated.rung(), Rung::Dedicated);
        assert_eq!(universal.rung(), Rung::Universal);
        assert_eq!(logits(&dedicated), logits(&universal));
    });
}

#[test]
fn a_rung_without_a_network_is_refused_by_name() {
    let message = on_mlx_thread(|| {
        let error = load(&Folder::llama(Dtype::F32), Some(Rung::Generated)).expect_err("none");
        assert!(matches!(error, EngineError::NoSuchRung { .. }), "{error}");
        error.to_string()
    });
    assert!(message.contains("llama") && message.contains("generated"), "{message}");
}
