//! `config.json` as it stands, with the defaults of the reference's dataclasses.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The outer object. Images are not supported: `vision_config` describes towers that text never meets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireModel {
    #[serde(rename = "model_type")]
    pub(super) _model_type: String,
    #[serde(rename = "text_config")]
    pub(super) _text_config: Value,
    #[serde(rename = "vision_config")]
    pub(super) _vision_config: Option<Value>,
    #[serde(rename = "boi_token_id")]
    pub(super) _boi_token_id: Option<u32>,
    #[serde(rename = "eoi_token_id")]
    pub(super) _eoi_token_id: Option<u32>,
    #[serde(default = "default_image_token_id")]
    pub(super) image_token_id: u32,
    pub(super) video_token_id: Option<u32>,
    #[serde(default = "default_canvas_length")]
    pub(super) canvas_length: usize,
    #[serde(rename = "generation_config")]
    pub(super) _generation_config: Option<Value>,
    // The reference always ties.
    pub(super) tie_word_embeddings: Option<bool>,
}

fn default_image_token_id() -> u32 {
    258_880
}
fn default_canvas_length() -> usize {
    256
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireText {
    pub(super) model_type: Option<String>,
    #[serde(default = "default_vocab_size")]
    pub(super) vocab_size: usize,
    #[serde(default = "default_hidden_size")]
    pub(super) hidden_size: usize,
    #[serde(default = "default_intermediate_size")]
    pub(super) intermediate_size: usize,
    #[serde(default = "default_moe_intermediate_size")]
    pub(super) moe_intermediate_size: usize,
    #[serde(default = "default_num_hidden_layers")]
    pub(super) num_hidden_layers: usize,
    #[serde(default = "default_num_attention_heads")]
    pub(super) num_attention_heads: usize,
    #[serde(default = "default_num_key_value_heads")]
    pub(super) num_key_value_heads: usize,
    #[serde(default = "default_num_global_key_value_heads")]
    pub(super) num_global_key_value_heads: Option<usize>,
    #[serde(default = "default_head_dim")]
    pub(super) head_dim: usize,
    #[serde(default = "default_global_head_dim")]
    pub(super) global_head_dim: Option<usize>,
    #[serde(default = "default_rms_norm_eps")]
    pub(super) rms_norm_eps: f64,
    #[serde(default = "default_max_position_embeddings")]
    pub(super) max_position_embeddings: usize,
    pub(super) rope_parameters: Option<BTreeMap<String, WireRope>>,
    #[serde(default)]
    pub(super) attention_bias: bool,
    #[serde(default = "default_sliding_window")]
    pub(super) sliding_window: usize,
    pub(super) layer_types: Option<Vec<String>>,
    #[serde(default = "default_final_logit_softcapping")]
    pub(super) final_logit_softcapping: f64,
    #[serde(default = "default_num_experts")]
    pub(super) num_experts: usize,
    #[serde(default = "default_top_k_experts")]
    pub(super) top_k_experts: usize,
    // Keys without effect in the reference; only the value that its maths has is taken.
    pub(super) hidden_activation: Option<String>,
    pub(super) tie_word_embeddings: Option<bool>,
    pub(super) use_bidirectional_attention: Option<String>,
    pub(super) attention_k_eq_v: Option<bool>,
    pub(super) enable_moe_block: Option<bool>,
    pub(super) hidden_size_per_layer_input: Option<usize>,
    pub(super) num_kv_shared_layers: Option<usize>,
    pub(super) use_double_wide_mlp: Option<bool>,
}

fn default_vocab_size() -> usize {
    262_144
}
fn default_hidden_size() -> usize {
    2816
}
fn default_intermediate_size() -> usize {
    2112
}
fn default_moe_intermediate_size() -> usize {
    704
}
fn default_num_hidden_layers() -> usize {
    30
}
fn default_num_attention_heads() -> usize {
    16
}
fn default_num_key_value_heads() -> usize {
    8
}
#[expect(clippy::unnecessary_wraps, reason = "null means something else than absence")]
fn default_num_global_key_value_heads() -> Option<usize> {
    Some(2)
}
fn default_head_dim() -> usize {
    256
}
#[expect(clippy::unnecessary_wraps, reason = "null means something else than absence")]
fn default_global_head_dim() -> Option<usize> {
    Some(512)
}
fn default_rms_norm_eps() -> f64 {
    1e-6
}
fn default_max_position_embeddings() -> usize {
    262_144
}
fn default_sliding_window() -> usize {
    1024
}
fn default_final_logit_softcapping() -> f64 {
    30.0
}
fn default_num_experts() -> usize {
    128
}
fn default_top_k_experts() -> usize {
    8
}

/// The position encoding of one kind of layer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireRope {
    #[serde(alias = "type")]
    pub(super) rope_type: Option<String>,
    pub(super) rope_theta: Option<f64>,
    pub(super) partial_rotary_factor: Option<f64>,
    pub(super) factor: Option<f64>,
}
