//! Configs of models with experts: each key is honoured or refused by name. No MLX here.

use mlx_parity_engine::config::ConfigFile;
use mlx_parity_engine::{EngineError, check_config, config_keys};
use rstest::rstest;
use serde_json::{Value, json};

use super::json;

const NAMES: [&str; 9] = [
    "dots1",
    "ernie4_5_moe",
    "glm4_moe",
    "granitemoe",
    "mixtral",
    "olmoe",
    "phimoe",
    "qwen2_moe",
    "qwen3_moe",
];

fn check(config: &Value) -> Result<(), EngineError> {
    let dir = tempfile::TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("config.json"), config.to_string()).expect("a config");
    check_config(&ConfigFile::read(dir.path()).expect("valid JSON"))
}

#[test]
fn every_synthetic_config_is_good() {
    for name in NAMES {
        check(&json(name, "config.json")).expect(name);
    }
}

#[test]
fn an_unknown_key_and_another_activation_are_refused_by_name() {
    for name in NAMES {
        for (key, value) in [("moe_jump", json!(1)), ("hidden_act", json!("gelu"))] {
            let mut config = json(name, "config.json");
            config[key] = value;
            let message = check(&config).expect_err(name).to_string();
            assert!(message.contains(key) && message.contains("config.json"), "{name}: {message}");
        }
    }
}

#[test]
fn the_keys_of_published_models_are_understood() {
    let harmless = json!({
        "architectures": ["X"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "initializer_range": 0.02, "output_router_logits": false,
        "router_aux_loss_coef": 0.001, "torch_dtype": "bfloat16", "transformers_version": "4.5",
        "use_cache": true, "rope_scaling": null,
    });
    for name in NAMES {
        let mut config = json(name, "config.json");
        for (key, value) in harmless.as_object().expect("an object") {
            config[key] = value.clone();
        }
        check(&config).expect(name);
    }
}

#[test]
fn every_key_is_listed() {
    for name in NAMES {
        let known = config_keys(name);
        let config = json(name, "config.json");
        for key in config.as_object().expect("an object").keys() {
            assert!(known.contains(&key.as_str()), "{name} {key}");
        }
    }
}

#[rstest]
#[case("mixtral", "num_experts_per_tok", json!(9))]
#[case("mixtral", "num_experts_per_tok", json!(0))]
#[case("mixtral", "num_local_experts", json!(0))]
#[case("mixtral", "sliding_window", json!(4096))]
#[case("mixtral", "head_dim", json!(32))]
#[case("qwen3_moe", "decoder_sparse_step", json!(0))]
#[case("qwen3_moe", "moe_intermediate_size", json!(0))]
#[case("qwen3_moe", "attention_bias", json!(true))]
#[case("qwen3_moe", "use_sliding_window", json!(true))]
#[case("qwen3_moe", "num_experts_per_tok", json!(9))]
#[case("qwen2_moe", "norm_topk_prob", json!(true))]
#[case("qwen2_moe", "decoder_sparse_step", json!(2))]
#[case("qwen2_moe", "mlp_only_layers", json!([1]))]
#[case("qwen2_moe", "tie_word_embeddings", json!(true))]
#[case("qwen2_moe", "qkv_bias", json!(false))]
#[case("qwen2_moe", "shared_expert_intermediate_size", json!(0))]
#[case("olmoe", "clip_qkv", json!(8.0))]
#[case("olmoe", "num_experts", json!(0))]
#[case("granitemoe", "num_local_experts", json!(1))]
#[case("glm4_moe", "tie_word_embeddings", json!(true))]
#[case("glm4_moe", "topk_method", json!("greedy"))]
#[case("glm4_moe", "scoring_func", json!("softmax"))]
#[case("glm4_moe", "n_group", json!(3))]
#[case("glm4_moe", "n_group", json!(0))]
#[case("glm4_moe", "topk_group", json!(2))]
#[case("glm4_moe", "topk_group", json!(0))]
#[case("glm4_moe", "partial_rotary_factor", json!(1.5))]
#[case("glm4_moe", "n_shared_experts", json!(0))]
#[case("dots1", "attention_bias", json!(true))]
#[case("dots1", "scoring_func", json!("softmax"))]
#[case("dots1", "n_group", json!(16))]
#[case("dots1", "layer_types", json!(["sliding_attention"]))]
#[case("dots1", "n_shared_experts", json!(0))]
#[case("ernie4_5_moe", "moe_use_aux_free", json!(true))]
#[case("ernie4_5_moe", "moe_norm_min", json!(1e-6))]
#[case("ernie4_5_moe", "moe_gate_act", json!("relu"))]
#[case("ernie4_5_moe", "moe_layer_interval", json!(0))]
#[case("ernie4_5_moe", "moe_layer_end_index", json!([]))]
#[case("ernie4_5_moe", "moe_k", json!(9))]
#[case("phimoe", "lm_head_bias", json!(false))]
#[case("phimoe", "attention_bias", json!(false))]
#[case("phimoe", "sliding_window", json!(16))]
#[case("phimoe", "tie_word_embeddings", json!(true))]
#[case("phimoe", "num_experts_per_tok", json!(9))]
fn a_key_that_asks_for_other_maths_is_refused_by_name(
    #[case] name: &str,
    #[case] key: &str,
    #[case] value: Value,
) {
    let mut config = json(name, "config.json");
    config[key] = value;
    let message = check(&config).expect_err("it must be refused").to_string();
    let named = if name == "granitemoe" { "num_experts_per_tok" } else { key };
    assert!(message.contains(named) && message.contains("config.json"), "{message}");
}

#[rstest]
#[case("qwen3_moe", "mlp_only_layers")]
#[case("qwen3_moe", "norm_topk_prob")]
#[case("qwen3_moe", "head_dim")]
#[case("granitemoe", "residual_multiplier")]
#[case("glm4_moe", "routed_scaling_factor")]
#[case("glm4_moe", "num_key_value_heads")]
#[case("dots1", "first_k_dense_replace")]
#[case("ernie4_5_moe", "use_bias")]
#[case("olmoe", "num_experts")]
#[case("qwen2_moe", "shared_expert_intermediate_size")]
fn a_missing_key_is_named(#[case] name: &str, #[case] key: &str) {
    let mut config = json(name, "config.json");
    config.as_object_mut().expect("an object").remove(key);
    let message = check(&config).expect_err("it is needed").to_string();
    assert!(message.contains(key), "{message}");
}
