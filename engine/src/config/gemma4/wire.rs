//! The keys of a `gemma4_text` config as the file spells them: `ModelArgs` of
//! `mlx_lm/models/gemma4_text.py`, with its defaults.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
pub(super) struct WireGemma4Text {
    pub(super) model_type: Option<String>,
    #[serde(default = "size::<1536>")]
    pub(super) hidden_size: usize,
    #[serde(default = "size::<35>")]
    pub(super) num_hidden_layers: usize,
    #[serde(default = "size::<6144>")]
    pub(super) intermediate_size: usize,
    #[serde(default = "size::<8>")]
    pub(super) num_attention_heads: usize,
    #[serde(default = "size::<256>")]
    pub(super) head_dim: usize,
    #[serde(default = "some_size::<512>")]
    pub(super) global_head_dim: Option<usize>,
    #[serde(default = "default_rms_norm_eps")]
    pub(super) rms_norm_eps: f64,
    #[serde(default = "size::<262_144>")]
    pub(super) vocab_size: usize,
    #[serde(default = "size::<262_144>")]
    pub(super) vocab_size_per_layer_input: usize,
    #[serde(default = "size::<1>")]
    pub(super) num_key_value_heads: usize,
    pub(super) num_global_key_value_heads: Option<usize>,
    #[serde(default = "size::<20>")]
    pub(super) num_kv_shared_layers: usize,
    #[serde(default = "some_size::<256>")]
    pub(super) hidden_size_per_layer_input: Option<usize>,
    #[serde(default)]
    pub(super) rope_traditional: bool,
    pub(super) rope_parameters: Option<BTreeMap<String, Value>>,
    #[serde(default = "size::<512>")]
    pub(super) sliding_window: usize,
    pub(super) sliding_window_pattern: Option<usize>,
    #[serde(default = "size::<131_072>")]
    pub(super) max_position_embeddings: usize,
    #[serde(default)]
    pub(super) attention_k_eq_v: bool,
    #[serde(default = "default_final_logit_softcapping")]
    pub(super) final_logit_softcapping: Option<f64>,
    #[serde(default = "yes")]
    pub(super) use_double_wide_mlp: bool,
    #[serde(default)]
    pub(super) enable_moe_block: bool,
    pub(super) num_experts: Option<usize>,
    pub(super) top_k_experts: Option<usize>,
    pub(super) moe_intermediate_size: Option<usize>,
    pub(super) layer_types: Option<Vec<String>>,
    #[serde(default = "yes")]
    pub(super) tie_word_embeddings: bool,
    // The reference gives none of the following a meaning; they are taken only where they change
    // nothing.
    pub(super) global_partial_rotary_factor: Option<f64>,
    pub(super) partial_rotary_factor: Option<f64>,
    pub(super) attention_bias: Option<bool>,
    pub(super) hidden_activation: Option<String>,
    pub(super) use_bidirectional_attention: Option<Value>,
}

/// The keys of a `gemma4` config beside `text_config`. What describes images and sound says nothing
/// of text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireGemma4 {
    #[serde(rename = "model_type")]
    _model_type: String,
    #[serde(rename = "text_config")]
    _text_config: Value,
    #[serde(default = "size::<262_144>")]
    pub(super) vocab_size: usize,
    pub(super) tie_word_embeddings: Option<bool>,
    #[serde(rename = "vision_config")]
    _vision_config: Option<Value>,
    #[serde(rename = "audio_config")]
    _audio_config: Option<Value>,
    #[serde(rename = "boi_token_id")]
    _boi_token_id: Option<u32>,
    #[serde(rename = "eoi_token_id")]
    _eoi_token_id: Option<u32>,
    #[serde(rename = "image_token_id")]
    _image_token_id: Option<u32>,
    #[serde(rename = "video_token_id")]
    _video_token_id: Option<u32>,
    #[serde(rename = "boa_token_id")]
    _boa_token_id: Option<u32>,
    #[serde(rename = "eoa_token_index")]
    _eoa_token_index: Option<u32>,
    #[serde(rename = "eoa_token_id")]
    _eoa_token_id: Option<u32>,
    #[serde(rename = "audio_token_id")]
    _audio_token_id: Option<u32>,
    #[serde(rename = "vision_soft_tokens_per_image")]
    _vision_soft_tokens_per_image: Option<u32>,
}

fn size<const SIZE: usize>() -> usize {
    SIZE
}
#[expect(clippy::unnecessary_wraps, reason = "serde wants the field's type")]
fn some_size<const SIZE: usize>() -> Option<usize> {
    Some(SIZE)
}
fn default_rms_norm_eps() -> f64 {
    1e-6
}
#[expect(clippy::unnecessary_wraps, reason = "serde wants the field's type")]
fn default_final_logit_softcapping() -> Option<f64> {
    Some(30.0)
}
fn yes() -> bool {
    true
}
