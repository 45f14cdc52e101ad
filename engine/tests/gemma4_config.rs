//! A gemma4 config is either fully understood or refused with the key and the file named. No MLX here.

use std::path::Path;

use mlx_parity_engine::EngineError;
use mlx_parity_engine::config::{ConfigFile, Gemma4TextConfig, KeyValues, LayerKind};
use mlx_parity_engine::ops::{Proportional, RopeScaling};
use rstest::rstest;
use serde_json::{Value, json};

/// The config of a synthetic model.
fn base(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/synthetic").join(name);
    let text = std::fs::read_to_string(path.join("config.json")).expect("a synthetic model");
    serde_json::from_str(&text).expect("JSON")
}

fn read(config: &Value) -> Result<Gemma4TextConfig, EngineError> {
    let dir = tempfile::TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("config.json"), config.to_string()).expect("a config");
    let file = ConfigFile::read(dir.path()).expect("valid JSON");
    match config["model_type"].as_str().expect("a type") {
        "gemma4_text" => Gemma4TextConfig::read_text(&file),
        _ => Gemma4TextConfig::read(&file),
    }
}

const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";

#[rstest]
#[case::unknown_key("gemma4_text", "laurel_rank", json!(64))]
#[case::attention_bias("gemma4_text", "attention_bias", json!(true))]
#[case::other_activation("gemma4_text", "hidden_activation", json!("silu"))]
#[case::bidirectional("gemma4_text", "use_bidirectional_attention", json!("all"))]
#[case::other_text_model("gemma4", "text_config.model_type", json!("gemma3_text"))]
#[case::all_shared("gemma4_text", "num_kv_shared_layers", json!(6))]
#[case::more_shared_than_layers("gemma4_text", "num_kv_shared_layers", json!(7))]
#[case::no_donor("gemma4_text", "num_kv_shared_layers", json!(4))]
#[case::few_types("gemma4_text", "layer_types", json!([FULL]))]
#[case::odd_type("gemma4_text", "layer_types", json!([FULL, FULL, FULL, FULL, FULL, "chunked"]))]
#[case::last_slides("gemma4_text", "layer_types", json!([FULL, SLIDING, FULL, FULL, FULL, SLIDING]))]
#[case::other_pattern("gemma4_text", "sliding_window_pattern", json!(2))]
#[case::no_window("gemma4_text", "sliding_window", json!(0))]
#[case::odd_global_head("gemma4_text", "global_head_dim", json!(33))]
#[case::odd_head("gemma4_text", "head_dim", json!(15))]
#[case::global_heads("gemma4_text-large", "num_global_key_value_heads", json!(3))]
#[case::heads("gemma4_text", "num_key_value_heads", json!(3))]
#[case::small_second_table("gemma4_text", "vocab_size_per_layer_input", json!(255))]
#[case::cap_zero("gemma4_text", "final_logit_softcapping", json!(0))]
#[case::eps_zero("gemma4_text", "rms_norm_eps", json!(0.0))]
#[case::contradicting_turn("gemma4_text", "global_partial_rotary_factor", json!(0.5))]
#[case::partial_sliding("gemma4_text", "partial_rotary_factor", json!(0.5))]
#[case::rope_of_no_kind("gemma4_text", "rope_parameters", json!({"chunked_attention": {}}))]
#[case::rope_type("gemma4_text", "rope_parameters", json!({SLIDING: {"rope_type": "spiral"}}))]
#[case::rope_subkey("gemma4_text", "rope_parameters", json!({SLIDING: {"beta_fast": 32}}))]
#[case::too_few_experts("gemma4_text-moe", "top_k_experts", json!(9))]
#[case::no_experts("gemma4_text-moe", "num_experts", json!(null))]
#[case::no_expert_width("gemma4_text-moe", "moe_intermediate_size", json!(0))]
#[case::other_outer_vocabulary("gemma4", "text_config.vocab_size", json!(128))]
#[case::other_outer_tying("gemma4", "tie_word_embeddings", json!(false))]
#[case::unknown_inner_key("gemma4", "text_config.laurel_rank", json!(64))]
#[case::unknown_outer_key("gemma4", "vision_scale", json!(2.0))]
#[case::inner_quantization("gemma4", "text_config.quantization", json!({"bits": 4}))]
#[case::no_text("gemma4", "text_config", json!("none"))]
fn a_key_that_changes_the_maths_is_refused_by_name(
    #[case] model: &str,
    #[case] key: &str,
    #[case] value: Value,
) {
    let mut config = base(model);
    read(&config).expect("the config is good without the change");
    match key.split_once('.') {
        Some((outer, inner)) => config[outer][inner] = value,
        None => config[key] = value,
    }
    let message = read(&config).expect_err("the key must be refused").to_string();
    assert!(message.contains("config.json"), "{message}");
    // A layer that shares names the layer types that leave it without a donor.
    let named = if message.contains("shares keys") { "layer_types" } else { key };
    assert!(message.contains(named), "{message} should name {named}");
}

#[rstest]
#[case::text("gemma4_text", json!({
    "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2, "dtype": "bfloat16",
    "eos_token_id": 1, "hidden_activation": "gelu_pytorch_tanh", "initializer_range": 0.02,
    "num_experts": null, "top_k_experts": null, "moe_intermediate_size": null,
    "num_global_key_value_heads": null, "pad_token_id": 0, "use_bidirectional_attention": null,
    "use_cache": true, "enable_moe_block": false, "global_partial_rotary_factor": 0.25,
}))]
#[case::wrapper("gemma4", json!({
    "architectures": ["Gemma4ForConditionalGeneration"], "audio_config": null, "audio_token_id": 258_881,
    "boa_token_id": 256_000, "boi_token_id": 255_999, "eoa_token_id": 258_883,
    "eoa_token_index": 258_883, "eoi_token_id": 258_882, "eos_token_id": [1, 106],
    "image_token_id": 258_880, "initializer_range": 0.02, "tie_word_embeddings": true,
    "video_token_id": 258_884, "vision_config": {"model_type": "gemma4_vision"},
    "vision_soft_tokens_per_image": 280,
}))]
fn the_keys_of_published_models_are_understood(#[case] model: &str, #[case] extra: Value) {
    let mut config = base(model);
    let plain = read(&config).expect("a good config");
    for (key, value) in extra.as_object().expect("an object") {
        config[key] = value.clone();
    }
    assert_eq!(read(&config).expect("all keys are known"), plain);
}

#[test]
fn defaults_are_those_of_the_reference() {
    let config = json!({"model_type": "gemma4_text"});
    let read = read(&config).expect("everything has a default");
    assert_eq!(read.layers.len(), 35);
    assert_eq!((read.window, read.final_softcap, read.tied), (512, Some(30.0), true));
    let inputs = read.per_layer_input.expect("on by default");
    assert_eq!((inputs.vocab_size, inputs.width), (262_144, 256));
    let full = &read.layers[4];
    assert_eq!((full.kind, full.head_dim, full.rope.base), (LayerKind::Full, 512, 1e6));
    let quarter = Proportional { partial_rotary_factor: 0.25, factor: 1.0 };
    assert_eq!(full.rope.scaling, RopeScaling::Proportional(quarter));
    let sliding = &read.layers[13];
    assert_eq!((sliding.kind, sliding.head_dim, sliding.rope.base), (LayerKind::Sliding, 256, 1e4));
    assert_eq!((sliding.key_values, sliding.intermediate_size), (KeyValues::Own, 6144));
    // The last 20 share with the last of their kind before them, and have twice the inner width.
    assert_eq!(read.layers[15].key_values, KeyValues::Shared(13));
    assert_eq!(read.layers[34].key_values, KeyValues::Shared(14));
    assert_eq!(read.layers[34].intermediate_size, 12288);
}

#[test]
fn keys_stand_for_values_in_full_layers_only() {
    let read = read(&base("gemma4_text-large")).expect("a good config");
    let seen: Vec<_> = read.layers.iter().map(|layer| (layer.key_values, layer.kv_heads)).collect();
    let (own, keys) = ((KeyValues::Own, 2), (KeyValues::OwnKeysOnly, 1));
    assert_eq!(seen, [own, own, keys, own, own, keys]);
}

#[test]
fn a_plain_rope_turns_whole_heads() {
    let mut config = base("gemma4_text");
    config["rope_parameters"][SLIDING]["partial_rotary_factor"] = json!(0.5);
    let message = read(&config).expect_err("the reference would turn all of it").to_string();
    assert!(message.contains("partial_rotary_factor"), "{message}");
}

#[test]
fn a_null_softcap_is_none() {
    let mut config = base("gemma4_text");
    config["final_logit_softcapping"] = Value::Null;
    assert_eq!(read(&config).expect("a good config").final_softcap, None);
}

#[test]
fn a_kind_without_rope_parameters_is_plain() {
    let mut config = base("gemma4_text");
    config["rope_parameters"] = json!({SLIDING: {"rope_theta": 5e5}});
    let read = read(&config).expect("a good config");
    assert_eq!(
        (read.layers[2].rope.base, &read.layers[2].rope.scaling),
        (1e4, &RopeScaling::Default)
    );
    assert_eq!(read.layers[0].rope.base, 5e5);
}
