//! `qwen3_5` configs: what each key means, and which are refused by name. No MLX here.

use mlx_parity_engine::EngineError;
use mlx_parity_engine::config::{ConfigFile, Qwen35Config, Qwen35Experts};
use rstest::rstest;
use serde_json::{Value, json};

fn file(config: &Value) -> (tempfile::TempDir, ConfigFile) {
    let dir = tempfile::TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("config.json"), config.to_string()).expect("a config");
    let file = ConfigFile::read(dir.path()).expect("valid JSON");
    (dir, file)
}

fn read(config: &Value) -> Result<Qwen35Config, EngineError> {
    Qwen35Config::read(&file(config).1)
}

fn text() -> Value {
    json!({
        "model_type": "qwen3_5", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "vocab_size": 40, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
        "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "full_attention_interval": 3,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1], "mrope_interleaved": true,
        },
    })
}

fn wrapped(text: &Value) -> Value {
    json!({
        "model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 2},
        "image_token_id": 1, "video_token_id": 2, "vision_start_token_id": 3,
        "vision_end_token_id": 4,
    })
}

fn with(key: &str, value: Value) -> Value {
    let mut config = text();
    config[key] = value;
    config
}

#[test]
fn a_text_config_reads_alike_flat_and_wrapped() {
    let mut inner = text();
    inner["model_type"] = json!("qwen3_5_text");
    assert_eq!(read(&text()).expect("flat"), read(&wrapped(&inner)).expect("wrapped"));
}

#[test]
fn the_last_layer_of_each_interval_attends() {
    let config = read(&text()).expect("a config");
    let linear: Vec<bool> = (0..6).map(|layer| config.is_linear(layer)).collect();
    assert_eq!(linear, [true, true, false, true, true, false]);
    assert_eq!((config.linear.keys(), config.linear.values()), (64, 64));
    assert_eq!(config.linear.channels(), 192);
}

#[test]
fn what_is_absent_has_the_value_of_the_reference() {
    let config = read(&json!({"model_type": "qwen3_5"})).expect("all defaults");
    let dims = &config.dims;
    assert_eq!((dims.hidden_size, dims.intermediate_size, dims.num_layers), (4096, 14336, 32));
    assert_eq!((dims.heads, dims.kv_heads, dims.head_dim), (32, 8, 128));
    assert_eq!((dims.vocab_size, dims.max_positions), (151_936, Some(131_072)));
    assert_eq!((config.linear.key_heads, config.linear.value_heads), (16, 64));
    assert_eq!((config.linear.key_dim, config.linear.value_dim), (192, 128));
    assert_eq!((config.linear.taps, config.interval), (4, 4));
    assert!(!config.tied && !config.attention_bias);
    assert_eq!((config.rope.base, config.rope.rotated(128)), (100_000.0, 32));
}

/// `rope_parameters` decides alone where it says anything.
#[rstest]
#[case::object(text(), (5000.0, 16))]
#[case::theta_open(with("rope_parameters", json!({"type": "default"})), (100_000.0, 8))]
#[case::mrope_by_name(
    with("rope_parameters", json!({"type": "mrope", "mrope_section": [2, 1, 1]})), (100_000.0, 8)
)]
#[case::null(with("rope_parameters", json!(null)), (100_000.0, 8))]
fn rope_goes_by_its_parameters(#[case] config: Value, #[case] wanted: (f64, usize)) {
    let rope = read(&config).expect("a config").rope;
    assert_eq!((rope.base, rope.rotated(32)), wanted);
}

#[test]
fn rope_keys_beside_empty_parameters_count() {
    for empty in [json!(null), json!({})] {
        let mut config = with("rope_parameters", empty);
        config["rope_theta"] = json!(700.0);
        config["partial_rotary_factor"] = json!(0.25);
        let rope = read(&config).expect("a config").rope;
        assert_eq!((rope.base, rope.rotated(32)), (700.0, 8));
    }
}

#[rstest]
#[case::unknown_key("logit_scale", json!(2.0))]
#[case::other_activation("hidden_act", json!("gelu"))]
#[case::no_output_gate("attn_output_gate", json!(false))]
#[case::half_memory("mamba_ssm_dtype", json!("bfloat16"))]
#[case::sparse_step("decoder_sparse_step", json!(2))]
#[case::other_layers("mlp_only_layers", json!([0]))]
#[case::other_types("layer_types", json!(["full_attention"]))]
#[case::interval_one("full_attention_interval", json!(1))]
#[case::interval_past_the_layers("full_attention_interval", json!(7))]
#[case::one_tap("linear_conv_kernel_dim", json!(1))]
#[case::no_key_heads("linear_num_key_heads", json!(0))]
#[case::heads_do_not_divide("linear_num_value_heads", json!(3))]
#[case::wide_beyond_reason("linear_key_head_dim", json!(1 << 20))]
#[case::other_theta("rope_theta", json!(77.0))]
#[case::other_share("partial_rotary_factor", json!(0.25))]
#[case::other_scaling("rope_scaling", json!({"type": "linear", "factor": 2.0}))]
#[case::share_of_a_share("rope_parameters", json!({"type": "proportional"}))]
#[case::long("rope_parameters", json!({
    "type": "longrope", "short_factor": 1.0, "long_factor": 2.0,
    "original_max_position_embeddings": 256,
}))]
#[case::odd_share("rope_parameters", json!({"partial_rotary_factor": 0.1}))]
#[case::rope_is_a_word("rope_parameters", json!("default"))]
#[case::other_type("model_type", json!("qwen3_next"))]
#[case::odd_head("head_dim", json!(31))]
#[case::eps_zero("rms_norm_eps", json!(0.0))]
fn a_key_that_changes_the_maths_is_refused_by_name(#[case] key: &str, #[case] value: Value) {
    let flat = with(key, value);
    let message = read(&flat).expect_err("the config is refused").to_string();
    assert!(message.contains(key) && message.contains("config.json"), "{message}");
    let message = read(&wrapped(&flat)).expect_err("the config is refused").to_string();
    assert!(message.contains("text_config"), "{message}");
}

#[test]
fn keys_around_the_text_model_must_agree_with_it() {
    let mut config = wrapped(&with("tie_word_embeddings", json!(true)));
    for (tied, taken) in [(json!(true), true), (json!(null), true), (json!(false), false)] {
        config["tie_word_embeddings"] = tied;
        assert_eq!(read(&config).is_ok(), taken, "{config}");
    }
    config["text_config"]["quantization"] = json!({"bits": 4});
    assert!(read(&config).expect_err("refused").to_string().contains("text_config.quantization"));
    config["hidden_size"] = json!(64);
    assert!(read(&config).expect_err("refused").to_string().contains("hidden_size"));
}

fn sparse() -> Value {
    let mut config = text();
    config["model_type"] = json!("qwen3_5_moe");
    for (key, value) in [
        ("num_experts", 8),
        ("num_experts_per_tok", 3),
        ("moe_intermediate_size", 32),
        ("shared_expert_intermediate_size", 64),
    ] {
        config[key] = json!(value);
    }
    config
}

#[test]
fn experts_are_read_where_there_are_any() {
    assert_eq!(read(&text()).expect("a config").experts, None);
    let wanted =
        Qwen35Experts { count: 8, picks: 3, width: 32, shared_width: 64, normalised: true };
    assert_eq!(read(&sparse()).expect("a config").experts, Some(wanted));
}

#[rstest]
#[case::more_picks_than_experts("num_experts_per_tok", json!(9))]
#[case::no_picks("num_experts_per_tok", json!(0))]
#[case::no_width("moe_intermediate_size", json!(0))]
#[case::no_shared_width("shared_expert_intermediate_size", json!(0))]
#[case::sparse_step("decoder_sparse_step", json!(2))]
fn experts_that_do_not_fit_are_refused(#[case] key: &str, #[case] value: Value) {
    let mut config = sparse();
    config[key] = value;
    assert!(read(&config).expect_err("refused").to_string().contains(key));
}

#[rstest]
#[case("layer_types", json!([
    "linear_attention", "linear_attention", "full_attention",
    "linear_attention", "linear_attention", "full_attention",
]))]
#[case("hidden_act", json!("silu"))]
#[case("attn_output_gate", json!(true))]
#[case("mamba_ssm_dtype", json!("float32"))]
#[case("mlp_only_layers", json!([]))]
#[case("mtp_num_hidden_layers", json!(1))]
#[case("mtp_use_dedicated_embeddings", json!(false))]
#[case("rope_theta", json!(5000.0))]
#[case("partial_rotary_factor", json!(0.5))]
#[case("num_experts_per_tok", json!(0))]
fn a_key_that_says_what_is_computed_changes_nothing(#[case] key: &str, #[case] value: Value) {
    assert_eq!(read(&with(key, value)).expect("taken"), read(&text()).expect("a config"));
}
