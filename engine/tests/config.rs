//! A config is either fully understood or refused with the key and the file named. No MLX here.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::Folder;
use mlx_parity_engine::config::{ConfigFile, Override, Quantization};
use mlx_parity_engine::ops::Affine;
use mlx_parity_engine::{EngineError, check_config};
use mlx_parity_tensor::Dtype;
use rstest::rstest;
use serde_json::{Value, json};

fn file(config: &Value) -> (tempfile::TempDir, ConfigFile) {
    let dir = tempfile::TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("config.json"), config.to_string()).expect("a config");
    let file = ConfigFile::read(dir.path()).expect("valid JSON");
    (dir, file)
}

fn read(config: &Value) -> Result<(), EngineError> {
    let (_dir, file) = file(config);
    check_config(&file)?;
    Quantization::read(&file).map(drop)
}

fn base(model_type: &str) -> Value {
    match model_type {
        "llama" => Folder::llama(Dtype::F32).config,
        "qwen3" => Folder::qwen3(Dtype::F32).config,
        _ => Folder::gemma3_text(Dtype::F32).config,
    }
}

#[rstest]
#[case::unknown_key("llama", "logit_scale", json!(2.0))]
#[case::other_activation("llama", "hidden_act", json!("gelu"))]
#[case::sliced_matmul("llama", "pretraining_tp", json!(2))]
#[case::partial_rope("llama", "partial_rotary_factor", json!(0.5))]
#[case::unread_window("llama", "sliding_window", json!(128))]
#[case::other_scaling_kind("llama", "rope_scaling", json!({"rope_type": "ntk", "factor": 8.0}))]
#[case::rope_without_factor("llama", "rope_scaling", json!({"rope_type": "linear"}))]
#[case::rope_factor_zero("llama", "rope_scaling", json!({"type": "linear", "factor": 0}))]
#[case::rope_unread_key("llama", "rope_scaling", json!({"rope_type": "default", "beta_fast": 3}))]
#[case::rope_not_an_object("llama", "rope_scaling", json!("linear"))]
#[case::few_layer_types("llama", "layer_types", json!(["full_attention"]))]
#[case::odd_layer_type("llama", "layer_types", json!(["full_attention", "chunked_attention"]))]
#[case::no_full_layer("llama", "layer_types", json!(["sliding_attention", "sliding_attention"]))]
#[case::window_missing("llama", "layer_types", json!(["full_attention", "sliding_attention"]))]
#[case::odd_head("llama", "head_dim", json!(15))]
#[case::heads_do_not_divide("llama", "num_key_value_heads", json!(3))]
#[case::no_layers("llama", "num_hidden_layers", json!(0))]
#[case::text_for_a_number("llama", "hidden_size", json!("64"))]
#[case::eps_zero("llama", "rms_norm_eps", json!(0.0))]
#[case::awq("llama", "quantization_config", json!({"quant_method": "awq", "bits": 4}))]
#[case::mxfp4("llama", "quantization", json!({"group_size": 32, "bits": 4, "mode": "mxfp4"}))]
#[case::odd_bits("llama", "quantization", json!({"group_size": 32, "bits": 7}))]
#[case::odd_group("llama", "quantization", json!({"group_size": 48, "bits": 4}))]
#[case::odd_override("llama", "quantization", json!({"bits": 4, "model.norm": "yes"}))]
#[case::quantized_activations("llama", "quantize_activations", json!(true))]
#[case::bias_unread("qwen3", "attention_bias", json!(true))]
#[case::window_unread("qwen3", "use_sliding_window", json!(true))]
#[case::window_open("qwen3", "sliding_window", json!(64))]
#[case::layer_type_unread("qwen3", "layer_types", json!(["full_attention", "sliding_attention"]))]
#[case::contradicting_base("qwen3", "rope_parameters", json!({"rope_theta": 77.0}))]
#[case::softcap("gemma3_text", "final_logit_softcapping", json!(30.0))]
#[case::other_gelu("gemma3_text", "hidden_activation", json!("gelu"))]
#[case::other_pattern("gemma3_text", "_sliding_window_pattern", json!(3))]
#[case::pattern_past_the_layers("gemma3_text", "sliding_window_pattern", json!(3))]
#[case::other_types("gemma3_text", "layer_types", json!(["full_attention", "full_attention"]))]
#[case::rope_by_type("gemma3_text", "rope_parameters", json!({"full_attention": {}}))]
#[case::bidirectional("gemma3_text", "use_bidirectional_attention", json!(true))]
fn a_key_that_changes_the_maths_is_refused_by_name(
    #[case] model_type: &str,
    #[case] key: &str,
    #[case] value: Value,
) {
    let mut config = base(model_type);
    read(&config).expect("the config is good without the key");
    config[key] = value;
    let message = read(&config).expect_err("the key must be refused").to_string();
    assert!(message.contains("config.json"), "{message}");
    let named = if key == "layer_types" && message.contains("sliding_window") {
        "sliding_window" // the key that is missing, rather than the one that asks for it
    } else {
        key
    };
    assert!(message.contains(named), "{message} should name {named}");
}

#[rstest]
#[case::llama("llama", json!({
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": [2, 3],
    "attention_bias": false, "attention_dropout": 0.0, "hidden_act": "silu", "mlp_bias": false,
    "initializer_range": 0.02, "pretraining_tp": 1, "rope_interleaved": false,
    "rope_scaling": null, "rope_theta": 100_000, "torch_dtype": "bfloat16",
    "transformers_version": "4.42.3", "use_cache": true, "is_llama_config": true,
}))]
#[case::qwen3("qwen3", json!({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "max_window_layers": 28, "sliding_window": null, "use_sliding_window": false,
    "rope_scaling": null, "use_cache": true, "torch_dtype": "bfloat16",
}))]
#[case::gemma3_text("gemma3_text", json!({
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
    "attn_logit_softcapping": null, "final_logit_softcapping": null, "cache_implementation": "hybrid",
    "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10_000,
    "layer_types": ["sliding_attention", "full_attention"], "rope_theta": 1_000_000,
}))]
fn the_keys_of_published_models_are_understood(#[case] model_type: &str, #[case] extra: Value) {
    let mut config = base(model_type);
    for (key, value) in extra.as_object().expect("an object") {
        config[key] = value.clone();
    }
    read(&config).expect("all keys are known");
}

#[test]
fn a_missing_key_is_named() {
    let mut config = base("qwen3");
    config.as_object_mut().expect("an object").remove("num_attention_heads");
    let message = read(&config).expect_err("it is needed").to_string();
    assert!(message.contains("num_attention_heads"), "{message}");
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let dir = tempfile::TempDir::new().expect("a folder");
    let text = r#"{"model_type": "llama", "vocab_size": 1, "vocab_size": 2}"#;
    std::fs::write(dir.path().join("config.json"), text).expect("a config");
    let message = ConfigFile::read(dir.path()).expect_err("twice").to_string();
    assert!(message.contains("vocab_size") && message.contains("config.json"), "{message}");
}

#[rstest]
#[case::truncated(r#"{"model_type": "lla"#)]
#[case::a_list("[]")]
#[case::empty("")]
fn a_config_that_is_no_object_is_refused(#[case] text: &str) {
    let dir = tempfile::TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("config.json"), text).expect("a config");
    let error = ConfigFile::read(dir.path()).expect_err("no object");
    assert!(matches!(error, EngineError::Config { .. }), "{error}");
    assert!(error.to_string().contains("config.json"));
}

#[test]
fn a_folder_without_a_config_is_named() {
    let dir = tempfile::TempDir::new().expect("a folder");
    let error = ConfigFile::read(dir.path()).expect_err("nothing there");
    assert!(matches!(error, EngineError::Io { .. }), "{error}");
    assert!(error.to_string().contains("config.json"));
}

#[test]
fn quantization_is_read_layer_by_layer() {
    let mut config = base("llama");
    config["quantization"] = json!({
        "group_size": 64, "bits": 4, "mode": "affine",
        "lm_head": false, "a": true, "b": {"group_size": 32, "bits": 8},
    });
    config["quantization_config"] = config["quantization"].clone();
    let (_dir, file) = file(&config);
    let read = Quantization::read(&file).expect("good").expect("present");
    assert_eq!(read.default, Affine { group_size: 64, bits: 4 });
    assert_eq!(read.overrides["lm_head"], Override::Plain);
    assert_eq!(read.overrides["a"], Override::Default);
    assert_eq!(read.overrides["b"], Override::As(Affine { group_size: 32, bits: 8 }));
}

#[rstest]
#[case::none(json!(null), None, &[])]
#[case::one(json!(7), None, &[7])]
#[case::several(json!([7, 8]), None, &[7, 8])]
#[case::generation_config_wins(json!(7), Some(json!({"eos_token_id": [9]})), &[9])]
#[case::generation_config_silent(json!(7), Some(json!({"top_k": 3})), &[7])]
fn end_ids_come_from_both_configs(
    #[case] model: Value,
    #[case] generation: Option<Value>,
    #[case] wanted: &[u32],
) {
    let mut config = base("llama");
    config["eos_token_id"] = model;
    let (dir, file) = file(&config);
    if let Some(generation) = generation {
        let path = dir.path().join("generation_config.json");
        std::fs::write(path, generation.to_string()).expect("a file");
    }
    assert_eq!(file.eos_token_ids().expect("good ids"), wanted);
}
