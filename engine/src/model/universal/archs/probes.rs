//! Every key of every reader here, set to another value: it changes the descriptor, or the load is
//! refused by the key's name. Keys that may do neither are few, and say so.

use serde_json::{Value, json};

use super::ARCHS;
use crate::config::testing::config;

/// What another value of a key must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Another descriptor.
    Honoured,
    /// An error that names the key.
    Refused,
    /// Nothing: it says what no model computes.
    Idle,
}
use Effect::{Honoured, Idle, Refused};

/// Architectures whose every key is probed, each with `goldens/synthetic/<name>/config.json` as base.
const PROBED: &[&str] = &[
    "apertus",
    "cohere",
    "cohere2",
    "ernie4_5",
    "exaone",
    "exaone4",
    "glm",
    "glm4",
    "gpt2",
    "gpt_neox",
    "granite",
    "helium",
    "hunyuan_v1_dense",
    "internlm3",
    "mimo",
    "nemotron",
    "olmo2",
    "olmo3",
    "phi",
    "seed_oss",
    "stablelm",
    "starcoder2",
];

/// Key, another value as JSON, effect. `!` is the other boolean.
type Row = (&'static str, &'static str, Effect);

/// What holds for every architecture that has the key, unless [`OWN`] says otherwise.
const COMMON: &[Row] = &[
    ("vocab_size", "128", Honoured),
    ("intermediate_size", "64", Honoured),
    ("hidden_size", "0", Refused),
    ("num_attention_heads", "0", Refused),
    ("num_hidden_layers", "2", Honoured),
    ("num_layers", "2", Honoured),
    ("num_key_value_heads", "1", Honoured),
    ("num_key_value_heads", "3", Refused),
    ("head_dim", "64", Honoured),
    ("head_dim", "15", Refused),
    ("max_position_embeddings", "77", Honoured),
    ("rms_norm_eps", "0.25", Honoured),
    ("rms_norm_eps", "0", Refused),
    ("layer_norm_eps", "0.25", Honoured),
    ("layer_norm_eps", "-1", Refused),
    ("layer_norm_epsilon", "0.25", Honoured),
    ("norm_epsilon", "0.25", Honoured),
    ("norm_eps", "0.25", Honoured),
    ("rope_theta", "77.0", Honoured),
    ("rope_theta", "0", Refused),
    ("rope_traditional", "!", Honoured),
    ("rope_scaling", r#"{"rope_type": "linear", "factor": 3.0}"#, Honoured),
    ("rope_scaling", r#"{"rope_type": "spiral", "factor": 3.0}"#, Refused),
    ("rope_parameters", r#"{"rope_type": "linear", "factor": 5.0}"#, Honoured),
    ("rope_parameters", r#"{"rope_type": "default", "rope_theta": 78.0}"#, Refused),
    ("partial_rotary_factor", "0.25", Honoured),
    ("partial_rotary_factor", "1.5", Refused),
    ("attention_bias", "!", Honoured),
    ("mlp_bias", "!", Honoured),
    ("layer_norm_bias", "!", Honoured),
    ("tie_word_embeddings", "!", Honoured),
    ("hidden_act", r#""relu""#, Refused),
    ("pretraining_tp", "2", Refused),
    ("logit_scale", "0.7", Honoured),
    ("sliding_window", "32", Honoured),
    ("sliding_window", "0", Refused),
    ("sliding_window_pattern", "2", Honoured),
    ("layer_types", r#"["full_attention"]"#, Refused),
];

/// What holds for one architecture, instead of the rows of that key in [`COMMON`].
const OWN: &[(&str, &[Row])] = &[
    (
        "apertus",
        &[
            ("head_dim", "64", Refused),
            ("hidden_act", r#""silu""#, Refused),
            ("attention_bias", "true", Refused),
            ("post_norm", "true", Refused),
            ("qk_norm", "false", Refused),
            // It contradicts the base's own scaling.
            ("rope_parameters", r#"{"rope_type": "linear", "factor": 5.0}"#, Refused),
        ],
    ),
    (
        "cohere",
        &[
            ("head_dim", "64", Refused),
            ("use_qk_norm", "!", Honoured),
            ("tie_word_embeddings", "false", Refused),
        ],
    ),
    (
        "cohere2",
        &[
            ("num_hidden_layers", "5", Honoured),
            ("head_dim", "32", Refused),
            ("layer_switch", "3", Refused),
            ("order_of_interleaved_layers", r#""global_attn_first""#, Refused),
            ("position_embedding_type", r#""rope_neox""#, Refused),
            ("rotary_pct", "0.5", Refused),
            ("sliding_window_pattern", "2", Honoured),
            ("sliding_window_pattern", "5", Refused),
            ("tie_word_embeddings", "false", Refused),
            ("use_embedding_sharing", "false", Refused),
            ("use_gated_activation", "false", Refused),
            ("use_parallel_block", "false", Refused),
            ("use_parallel_embedding", "false", Refused),
            ("use_qk_norm", "true", Refused),
        ],
    ),
    ("ernie4_5", &[("use_bias", "!", Honoured), ("compression_ratio", "2.0", Refused)]),
    (
        "exaone",
        &[
            // It contradicts the base's own scaling.
            ("rope_parameters", r#"{"rope_type": "linear", "factor": 5.0}"#, Refused),
            ("num_layers", "0", Refused),
            ("head_dim", "32", Refused),
            ("activation_function", r#""relu""#, Refused),
        ],
    ),
    (
        "exaone4",
        &[
            ("sliding_window_pattern", r#""LG""#, Honoured),
            ("sliding_window_pattern", r#""LL""#, Refused),
            ("sliding_window_pattern", r#""LX""#, Refused),
            ("sliding_window_pattern", "4", Refused),
            ("num_hidden_layers", "5", Honoured),
            // It contradicts the base's own scaling.
            ("rope_parameters", r#"{"rope_type": "linear", "factor": 5.0}"#, Refused),
        ],
    ),
    (
        "gpt2",
        &[
            ("n_embd", "128", Honoured),
            ("n_embd", "0", Refused),
            ("n_head", "2", Honoured),
            ("n_head", "3", Refused),
            ("n_layer", "2", Honoured),
            ("n_layer", "0", Refused),
            // `n_ctx` must say the same.
            ("n_positions", "64", Refused),
            ("n_ctx", "64", Refused),
            ("n_inner", "64", Refused),
            ("layer_norm_epsilon", "0", Refused),
            ("layer_norm_epsilon", "0.25", Honoured),
            ("activation_function", r#""gelu""#, Honoured),
            ("activation_function", r#""relu""#, Refused),
            ("num_key_value_heads", "2", Refused),
            ("add_cross_attention", "true", Refused),
            ("reorder_and_upcast_attn", "true", Refused),
            ("scale_attn_by_inverse_layer_idx", "true", Refused),
            ("scale_attn_weights", "false", Refused),
            ("tie_word_embeddings", "false", Refused),
        ],
    ),
    (
        "gpt_neox",
        &[
            ("intermediate_size", "64", Refused),
            ("num_key_value_heads", "1", Refused),
            ("head_dim", "64", Refused),
            ("rotary_emb_base", "77.0", Honoured),
            ("rotary_pct", "0.5", Honoured),
            ("use_parallel_residual", "!", Honoured),
            ("hidden_act", r#""gelu""#, Honoured),
            ("hidden_act", r#""relu""#, Refused),
            ("attention_bias", "false", Refused),
            ("tie_word_embeddings", "true", Refused),
        ],
    ),
    ("glm4", &[("rope_traditional", "false", Honoured), ("tie_word_embeddings", "true", Refused)]),
    (
        "granite",
        &[
            ("head_dim", "64", Refused),
            ("logits_scaling", "0.7", Honoured),
            ("logits_scaling", "0", Refused),
            ("attention_multiplier", "0.7", Honoured),
            ("embedding_multiplier", "0.7", Honoured),
            ("residual_multiplier", "0.7", Honoured),
        ],
    ),
    ("helium", &[("head_dim", "64", Refused)]),
    (
        "hunyuan_v1_dense",
        &[
            // It contradicts the base's own scaling.
            ("rope_parameters", r#"{"rope_type": "linear", "factor": 5.0}"#, Refused),
            // Only dynamic scaling goes by it, and alpha's does not.
            ("max_position_embeddings", "77", Honoured),
            ("rope_scaling", r#"{"type": "dynamic", "alpha": 3.0, "factor": 1.0}"#, Honoured),
            ("rope_scaling", r#"{"type": "yarn", "alpha": 3.0, "factor": 1.0}"#, Refused),
            ("rope_scaling", r#"{"type": "dynamic", "alpha": 3.0, "factor": 2.0}"#, Refused),
            ("rope_scaling", r#"{"type": "dynamic", "alpha": 0.0, "factor": 1.0}"#, Refused),
            ("use_qk_norm", "!", Honoured),
            ("mlp_bias", "true", Refused),
            ("norm_type", r#""layer""#, Refused),
            ("num_experts", "4", Refused),
            ("use_cla", "true", Refused),
        ],
    ),
    (
        "internlm3",
        &[
            ("head_dim", "64", Refused),
            // The two must agree.
            ("bias", "!", Refused),
            ("qkv_bias", "!", Refused),
            ("rope_parameters", r#"{"rope_type": "linear", "factor": 5.0}"#, Refused),
        ],
    ),
    (
        "mimo",
        &[
            ("head_dim", "64", Refused),
            ("attention_bias", "false", Refused),
            ("use_mrope", "true", Refused),
            ("use_sliding_window", "true", Refused),
            // Without `use_sliding_window` it would be refused.
            ("sliding_window", "32", Idle),
            ("max_window_layers", "7", Idle),
            ("num_nextn_predict_layers", "7", Idle),
        ],
    ),
    ("nemotron", &[("hidden_act", r#""silu""#, Refused)]),
    (
        "olmo3",
        &[
            // It contradicts the base's own scaling.
            ("rope_parameters", r#"{"rope_type": "linear", "factor": 5.0}"#, Refused),
            ("num_hidden_layers", "0", Refused),
            (
                "layer_types",
                r#"["full_attention", "full_attention", "full_attention", "full_attention"]"#,
                Refused,
            ),
            (
                "layer_types",
                r#"["sliding_attention", "full_attention", "full_attention", "full_attention"]"#,
                Honoured,
            ),
        ],
    ),
    (
        "phi",
        &[
            ("head_dim", "64", Refused),
            ("hidden_act", r#""gelu""#, Honoured),
            ("hidden_act", r#""relu""#, Refused),
            ("qk_layernorm", "true", Refused),
            ("tie_word_embeddings", "true", Refused),
        ],
    ),
    (
        "seed_oss",
        &[
            ("attention_out_bias", "!", Honoured),
            // It contradicts the base's own scaling.
            ("rope_parameters", r#"{"rope_type": "linear", "factor": 5.0}"#, Refused),
        ],
    ),
    (
        "stablelm",
        &[
            ("head_dim", "64", Refused),
            ("partial_rotary_factor", "0.5", Honoured),
            ("use_qkv_bias", "!", Honoured),
            ("use_parallel_residual", "!", Honoured),
            ("qk_layernorm", "!", Honoured),
            ("tie_word_embeddings", "true", Refused),
        ],
    ),
    (
        "starcoder2",
        &[
            ("head_dim", "64", Refused),
            ("hidden_act", r#""gelu_pytorch_tanh""#, Honoured),
            ("hidden_act", r#""relu""#, Refused),
            ("use_bias", "false", Refused),
            ("norm_type", r#""rms_norm""#, Refused),
            ("mlp_type", r#""gated""#, Refused),
        ],
    ),
];

fn base(name: &str) -> Value {
    let path = format!("{}/../goldens/synthetic/{name}/config.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("JSON")
}

/// Architectures that rotate neighbours, or halves, whatever the config says.
const TURNS_NEIGHBOURS: &[&str] = &["cohere", "cohere2", "ernie4_5", "glm", "helium"];
const TURNS_HALVES: &[&str] = &[
    "exaone4",
    "granite",
    "hunyuan_v1_dense",
    "nemotron",
    "olmo3",
    "phi",
    "stablelm",
    "starcoder2",
];

/// Architectures that can rotate a part of a head.
const TURNS_A_PART: &[&str] = &["glm", "glm4", "nemotron", "phi", "stablelm"];

/// The rows of a key of an architecture.
fn rows(name: &str, key: &str) -> Vec<Row> {
    let of = |rows: &[Row]| rows.iter().filter(|row| row.0 == key).copied().collect::<Vec<_>>();
    match key {
        "rope_traditional" if TURNS_NEIGHBOURS.contains(&name) => {
            return vec![("rope_traditional", "false", Refused)];
        }
        "rope_traditional" if TURNS_HALVES.contains(&name) => {
            return vec![("rope_traditional", "true", Refused)];
        }
        "partial_rotary_factor" if !TURNS_A_PART.contains(&name) => {
            return vec![("partial_rotary_factor", "0.25", Refused)];
        }
        _ => {}
    }
    let own = OWN.iter().find(|(arch, _)| *arch == name).map(|(_, rows)| of(rows));
    own.filter(|rows| !rows.is_empty()).unwrap_or_else(|| of(COMMON))
}

/// The descriptor of a config as text, or why there is none.
fn descriptor(name: &str, value: &Value) -> Result<String, String> {
    let arch = ARCHS.iter().find(|arch| arch.model_type == name).expect("a known architecture");
    (arch.spec)(&config(value)).map(|spec| format!("{spec:?}")).map_err(|error| error.to_string())
}

/// What a probe found wrong; nothing where the key does what it must.
fn probe(name: &str, (key, value, effect): Row) -> Option<String> {
    let before = base(name);
    let mut after = before.clone();
    after[key] = match value {
        "!" => json!(before[key] != true),
        text => serde_json::from_str(text).expect("JSON"),
    };
    let plain = descriptor(name, &before).unwrap_or_else(|error| panic!("{name}: {error}"));
    let found = descriptor(name, &after);
    let held = match (effect, &found) {
        (Honoured, Ok(other)) => *other != plain,
        (Idle, Ok(other)) => *other == plain,
        (Refused, Err(error)) => error.contains(key) && error.contains("config.json"),
        _ => false,
    };
    (!held).then(|| format!("{name}: {key} = {value} should be {effect:?}: {found:?}"))
}

#[test]
fn every_key_is_honoured_or_refused() {
    let mut wrong = Vec::new();
    for name in PROBED {
        let arch = ARCHS.iter().find(|arch| arch.model_type == *name).expect("it is in the table");
        for key in (arch.keys)().into_iter().filter(|key| *key != "model_type") {
            let rows = rows(name, key);
            if rows.is_empty() {
                wrong.push(format!("{name}: no probe of `{key}`"));
            }
            wrong.extend(rows.into_iter().filter_map(|row| probe(name, row)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_probe_is_of_a_key_that_nobody_reads() {
    for (name, rows) in OWN {
        let arch = ARCHS.iter().find(|arch| arch.model_type == *name).expect("it is in the table");
        let keys = (arch.keys)();
        for (key, ..) in *rows {
            assert!(keys.contains(key), "{name} does not read `{key}`");
        }
    }
}

#[test]
fn an_unknown_key_is_refused_by_name() {
    for name in PROBED {
        let mut other = base(name);
        other["mixture_of_depths"] = json!(true);
        let error = descriptor(name, &other).expect_err("nobody reads it");
        assert!(error.contains("mixture_of_depths"), "{name}: {error}");
    }
}

/// What the model's authors mean where the reference computes something else.
#[test]
fn keys_that_the_reference_ignores_mean_what_the_authors_mean() {
    let spec = |name: &str, set: &[(&str, Value)], without: &[&str]| {
        let mut value = base(name);
        for (key, new) in set {
            value[*key] = new.clone();
        }
        for key in without {
            value.as_object_mut().expect("an object").remove(*key);
        }
        let arch = ARCHS.iter().find(|arch| arch.model_type == name).expect("it is in the table");
        (arch.spec)(&config(&value)).expect("a good config")
    };
    let turned = |spec: &super::Spec| {
        spec.layers[0]
            .attention
            .rope
            .as_ref()
            .expect("it has positions")
            .rotated(spec.dims.head_dim)
    };
    assert_eq!(turned(&spec("glm", &[], &[])), 32);
    assert_eq!(turned(&spec("glm", &[], &["partial_rotary_factor"])), 16);
    let sliding = spec("starcoder2", &[("sliding_window", json!(16))], &[]);
    assert_eq!(sliding.window, Some(16));
    assert!(sliding.layers.iter().all(|layer| layer.kind == crate::config::LayerKind::Sliding));
    let tanh =
        |spec: &super::Spec| format!("{:?}", spec.layers[0].feed_forward).contains("GeluApprox");
    assert!(tanh(&spec("starcoder2", &[], &["hidden_act"])));
    assert!(!tanh(&spec("gpt_neox", &[], &["hidden_act"])));
    assert!(tanh(&spec("phi", &[], &["hidden_act"])));
}
