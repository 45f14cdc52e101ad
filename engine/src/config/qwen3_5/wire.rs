//! The keys of a `qwen3_5` config as they stand in the file, with the defaults of the reference.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// `TextModelArgs` of `mlx_lm/models/qwen3_5.py`, and what `transformers` writes beside them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WireText {
    pub model_type: Option<String>,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub rms_norm_eps: f64,
    pub vocab_size: usize,
    pub num_key_value_heads: usize,
    pub max_position_embeddings: usize,
    pub linear_num_value_heads: usize,
    pub linear_num_key_heads: usize,
    pub linear_key_head_dim: usize,
    pub linear_value_head_dim: usize,
    pub linear_conv_kernel_dim: usize,
    pub tie_word_embeddings: bool,
    pub attention_bias: bool,
    pub head_dim: Option<usize>,
    pub full_attention_interval: usize,
    pub num_experts: usize,
    pub num_experts_per_tok: usize,
    pub shared_expert_intermediate_size: usize,
    pub moe_intermediate_size: usize,
    pub norm_topk_prob: bool,
    /// Absent and null mean different things.
    #[serde(deserialize_with = "given")]
    pub rope_parameters: Option<Value>,
    pub partial_rotary_factor: Option<f64>,
    pub rope_theta: Option<f64>,
    pub rope_scaling: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    pub decoder_sparse_step: Option<usize>,
    pub mlp_only_layers: Option<Vec<usize>>,
    pub hidden_act: Option<String>,
    pub attn_output_gate: Option<bool>,
    pub mamba_ssm_dtype: Option<String>,
    pub layer_types: Option<Vec<String>>,
    /// How many layers draft further tokens; `sanitize` drops them.
    #[serde(rename = "mtp_num_hidden_layers")]
    pub _drafting_layers: Option<usize>,
    #[serde(rename = "mtp_use_dedicated_embeddings")]
    pub _drafting_embeddings: Option<bool>,
}

/// A value that may be null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Default for WireText {
    fn default() -> Self {
        Self {
            model_type: None,
            hidden_size: 4096,
            intermediate_size: 14336,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            rms_norm_eps: 1e-6,
            vocab_size: 151_936,
            num_key_value_heads: 8,
            max_position_embeddings: 131_072,
            linear_num_value_heads: 64,
            linear_num_key_heads: 16,
            linear_key_head_dim: 192,
            linear_value_head_dim: 128,
            linear_conv_kernel_dim: 4,
            tie_word_embeddings: false,
            attention_bias: false,
            head_dim: None,
            full_attention_interval: 4,
            num_experts: 0,
            num_experts_per_tok: 0,
            shared_expert_intermediate_size: 0,
            moe_intermediate_size: 0,
            norm_topk_prob: true,
            rope_parameters: None,
            partial_rotary_factor: None,
            rope_theta: None,
            rope_scaling: None,
            decoder_sparse_step: None,
            mlp_only_layers: None,
            hidden_act: None,
            attn_output_gate: None,
            mamba_ssm_dtype: None,
            layer_types: None,
            _drafting_layers: None,
            _drafting_embeddings: None,
        }
    }
}

/// The outer object of a model that sees images too; only its text part is run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireWrapper {
    #[serde(rename = "model_type")]
    _model_type: String,
    #[serde(rename = "text_config")]
    _text_config: Value,
    #[serde(rename = "vision_config")]
    _vision_config: Option<Value>,
    #[serde(rename = "image_token_id")]
    _image_token_id: Option<u32>,
    #[serde(rename = "video_token_id")]
    _video_token_id: Option<u32>,
    #[serde(rename = "vision_start_token_id")]
    _vision_start_token_id: Option<u32>,
    #[serde(rename = "vision_end_token_id")]
    _vision_end_token_id: Option<u32>,
    /// The reference reads that of the text part only.
    pub tie_word_embeddings: Option<bool>,
}
