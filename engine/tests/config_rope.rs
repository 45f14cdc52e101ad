//! Every subkey of a rotary encoding is read, or refused by name. No MLX here.

use mlx_parity_engine::EngineError;
use mlx_parity_engine::config::{ConfigFile, RopeConfig, RopeKeys};
use mlx_parity_engine::ops::{Llama3, LongRope, Proportional, RopeScaling, Yarn};
use rstest::rstest;
use serde_json::{Value, json};

const LIMIT: usize = 128;

/// The encoding that the given keys of a config say, as llama reads them.
fn read(keys: &Value) -> Result<RopeConfig, EngineError> {
    let dir = tempfile::TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("config.json"), keys.to_string()).expect("a config");
    let file = ConfigFile::read(dir.path()).expect("valid JSON");
    RopeConfig::read(
        &file,
        &RopeKeys {
            theta: keys["rope_theta"].as_f64(),
            default_theta: Some(10_000.0),
            partial: keys["partial_rotary_factor"].as_f64(),
            objects: &[
                ("rope_scaling", keys.get("rope_scaling")),
                ("rope_parameters", keys.get("rope_parameters")),
            ],
            max_positions: Some(LIMIT),
            ..RopeKeys::default()
        },
    )
}

fn scaling(value: &Value) -> RopeScaling {
    let found = read(&json!({"rope_scaling": value})).expect("a good scaling").scaling;
    let nested = read(&json!({"rope_parameters": value})).expect("a good scaling").scaling;
    assert_eq!(found, nested, "both keys mean the same");
    found
}

#[test]
fn kinds_and_their_defaults() {
    assert_eq!(scaling(&json!({})), RopeScaling::Default);
    let mrope = json!({"type": "mrope", "mrope_section": [2, 3, 3], "mrope_interleaved": true});
    assert_eq!(scaling(&mrope), RopeScaling::Default);
    // `type` goes before `rope_type`, as in the reference.
    let linear = json!({"rope_type": "yarn", "type": "linear", "factor": 4.0});
    assert_eq!(scaling(&linear), RopeScaling::Linear { factor: 4.0 });
    let dynamic = json!({"rope_type": "dynamic", "factor": 2, ORIGINAL: LIMIT});
    assert_eq!(scaling(&dynamic), RopeScaling::Dynamic { factor: 2.0 });
    let llama3 = Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192.0,
    };
    assert_eq!(
        scaling(&json!({"rope_type": "llama3", "factor": 8.0})),
        RopeScaling::Llama3(llama3)
    );
    let yarn = Yarn {
        factor: 4.0,
        original_max_position_embeddings: 32.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        mscale: 1.0,
        mscale_all_dim: 0.0,
    };
    for kind in ["yarn", "deepseek_yarn", "telechat3-yarn"] {
        let found = scaling(&json!({"rope_type": kind, "factor": 4.0, ORIGINAL: 32}));
        assert_eq!(found, RopeScaling::Yarn(yarn), "{kind}");
    }
    let share = Proportional { partial_rotary_factor: 1.0, factor: 1.0 };
    assert_eq!(scaling(&json!({"rope_type": "proportional"})), RopeScaling::Proportional(share));
}

const ORIGINAL: &str = "original_max_position_embeddings";

#[test]
fn given_values_are_taken() {
    let found = scaling(&json!({
        "rope_type": "yarn", "factor": 4.0, ORIGINAL: 32, "beta_fast": 16, "beta_slow": 2,
        "mscale": 0.8, "mscale_all_dim": 0.3, "truncate": true,
    }));
    let yarn = Yarn {
        factor: 4.0,
        original_max_position_embeddings: 32.0,
        beta_fast: 16.0,
        beta_slow: 2.0,
        mscale: 0.8,
        mscale_all_dim: 0.3,
    };
    assert_eq!(found, RopeScaling::Yarn(yarn));
    for kind in ["longrope", "su"] {
        let found = scaling(&json!({
            "type": kind, "short_factor": 1.5, "long_factor": [1, 2, 3], ORIGINAL: 32,
            "short_mscale": 1.25, "long_mscale": 1.5, "factor": 4.0,
        }));
        let long = LongRope {
            original_max_position_embeddings: 32.0,
            short_factor: vec![1.5],
            long_factor: vec![1.0, 2.0, 3.0],
            short_mscale: Some(1.25),
            long_mscale: Some(1.5),
        };
        assert_eq!(found, RopeScaling::LongRope(long), "{kind}");
    }
    let share = Proportional { partial_rotary_factor: 0.25, factor: 2.0 };
    let found = scaling(
        &json!({"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 2.0}),
    );
    assert_eq!(found, RopeScaling::Proportional(share));
}

#[rstest]
#[case::unknown_kind(json!({"rope_type": "ntk"}), "rope_type")]
#[case::kind_that_is_no_name(json!({"type": 3}), "type")]
#[case::foreign_key(json!({"rope_type": "linear", "factor": 2, "beta_fast": 3}), "beta_fast")]
#[case::linear(json!({"rope_type": "linear"}), "factor")]
#[case::factor_zero(json!({"rope_type": "linear", "factor": 0}), "factor")]
#[case::dynamic_original(json!({"rope_type": "dynamic", "factor": 2, ORIGINAL: 32}), ORIGINAL)]
#[case::llama3(json!({"rope_type": "llama3"}), "factor")]
#[case::llama3_no_span(
    json!({"rope_type": "llama3", "factor": 2, "high_freq_factor": 1.0}), "high_freq_factor"
)]
#[case::yarn_context(json!({"rope_type": "yarn", "factor": 2}), ORIGINAL)]
#[case::yarn_mscale(json!({"rope_type": "yarn", "factor": 2, ORIGINAL: 8, "mscale": -1}), "mscale")]
#[case::yarn_attention(
    json!({"rope_type": "yarn", "factor": 2, ORIGINAL: 8, "attention_factor": 3}), "attention_factor"
)]
#[case::yarn_untruncated(
    json!({"rope_type": "yarn", "factor": 2, ORIGINAL: 8, "truncate": false}), "truncate"
)]
#[case::long_without_short(json!({"rope_type": "longrope", "long_factor": 2, ORIGINAL: 8}), "short_factor")]
#[case::long_factor_text(
    json!({"rope_type": "longrope", "short_factor": 1, "long_factor": ["2"], ORIGINAL: 8}), "long_factor"
)]
#[case::long_stretch(
    json!({"rope_type": "longrope", "short_factor": 1, "long_factor": 2, ORIGINAL: 8, "factor": 2}),
    "factor"
)]
#[case::share(json!({"rope_type": "proportional", "partial_rotary_factor": 1.5}), "partial_rotary_factor")]
#[case::partial(json!({"rope_type": "default", "partial_rotary_factor": 0.5}), "partial_rotary_factor")]
#[case::sections(json!({"rope_type": "mrope"}), "mrope_section")]
#[case::two_sections(json!({"rope_type": "mrope", "mrope_section": [1, 2]}), "mrope_section")]
fn what_is_not_meant_is_refused_by_name(#[case] value: Value, #[case] key: &str) {
    for outer in ["rope_scaling", "rope_parameters"] {
        let message = read(&json!({outer: value})).expect_err("to refuse").to_string();
        assert!(message.contains(key) && message.contains("config.json"), "{message}");
    }
}

#[rstest]
#[case::bases(json!({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}), "rope_theta")]
#[case::objects(
    json!({"rope_scaling": {"type": "linear", "factor": 2},
           "rope_parameters": {"rope_type": "linear", "factor": 3}}),
    "rope_parameters"
)]
fn keys_may_not_contradict_each_other(#[case] keys: Value, #[case] named: &str) {
    let message = read(&keys).expect_err("to refuse").to_string();
    assert!(message.contains(named), "{message}");
}

#[test]
fn the_base_may_stand_in_any_of_its_places() {
    let base = |keys: Value| read(&keys).expect("a good config").base;
    assert_eq!(base(json!({"rope_theta": 3e4})), 3e4);
    assert_eq!(base(json!({"rope_theta": null, "rope_parameters": {"rope_theta": 5e5}})), 5e5);
    assert_eq!(base(json!({"rope_theta": null})), 1e4);
}
