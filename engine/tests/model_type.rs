//! Dispatch by `model_type`.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::{Folder, on_mlx_thread};
use mlx_parity_engine::{EngineError, Rung, supported_model_types};
use mlx_parity_tensor::Dtype;
use rstest::rstest;
use serde_json::json;

#[rstest]
#[case::remapped("kimi_k2", Some("deepseek_v3"))]
#[case::remapped_elsewhere("llava", Some("mistral3"))]
#[case::unknown("no_such_model", None)]
fn an_unknown_type_names_itself_its_remap_and_what_is_supported(
    #[case] model_type: &'static str,
    #[case] wanted: Option<&'static str>,
) {
    let error = on_mlx_thread(move || {
        let mut folder = Folder::llama(Dtype::F32);
        folder.config["model_type"] = json!(model_type);
        folder.load().expect_err("not supported")
    });
    let message = error.to_string();
    assert!(message.contains(model_type) && message.contains("config.json"), "{message}");
    for supported in ["llama", "qwen3", "gemma3_text"] {
        assert!(message.contains(supported), "{message}");
    }
    match error {
        EngineError::UnknownModelType { remap, supported, .. } => {
            assert_eq!(remap, wanted);
            assert_eq!(supported, supported_model_types());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_config_without_a_type_is_refused() {
    let message = on_mlx_thread(|| {
        let mut folder = Folder::llama(Dtype::F32);
        folder.config.as_object_mut().expect("an object").remove("model_type");
        folder.load().expect_err("no type").to_string()
    });
    assert!(message.contains("model_type"), "{message}");
}

#[test]
fn custom_code_is_refused() {
    let message = on_mlx_thread(|| {
        let mut folder = Folder::llama(Dtype::F32);
        folder.config["model_file"] = json!("model.py");
        folder.load().expect_err("custom code").to_string()
    });
    assert!(message.contains("model_file"), "{message}");
}

#[rstest]
#[case::llama(Folder::llama(Dtype::F32), "llama", Dtype::F32)]
#[case::qwen3(Folder::qwen3(Dtype::Bf16), "qwen3", Dtype::Bf16)]
#[case::gemma3_text(Folder::gemma3_text(Dtype::F16), "gemma3_text", Dtype::F16)]
fn a_model_says_what_it_is(
    #[case] folder: Folder,
    #[case] architecture: &'static str,
    #[case] dtype: Dtype,
) {
    on_mlx_thread(move || {
        let model = folder.load().expect("a good folder");
        assert_eq!(model.architecture(), architecture);
        assert_eq!(model.dtype(), dtype);
        assert_eq!((model.vocab_size(), model.num_layers()), (common::VOCAB, 2));
    });
}

#[rstest]
fn a_type_that_mlx_lm_remaps_runs_as_its_target(
    #[values("mistral", "iquestcoder", "xverse")] model_type: &'static str,
) {
    on_mlx_thread(move || {
        let mut folder = Folder::llama(Dtype::F32);
        folder.config["model_type"] = json!(model_type);
        let model = folder.load().expect("it runs as llama");
        assert_eq!((model.architecture(), model.rung()), ("llama", Rung::Universal));
    });
}
