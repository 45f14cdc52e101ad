//! `model_type` `gemma3_text`: `ModelArgs` of `mlx_lm/models/gemma3_text.py`.

use serde::Deserialize;
use serde_json::Value;

use super::keys::keys_of;
use super::{ConfigFile, Dims, LayerKind, RopeConfig, RopeKeys};
use crate::error::EngineError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireGemma3Text {
    #[serde(rename = "model_type")]
    _model_type: String,
    #[serde(default = "default_hidden_size")]
    hidden_size: usize,
    #[serde(default = "default_num_hidden_layers")]
    num_hidden_layers: usize,
    #[serde(default = "default_intermediate_size")]
    intermediate_size: usize,
    #[serde(default = "default_num_attention_heads")]
    num_attention_heads: usize,
    #[serde(default = "default_head_dim")]
    head_dim: usize,
    #[serde(default = "default_rms_norm_eps")]
    rms_norm_eps: f64,
    #[serde(default = "default_vocab_size")]
    vocab_size: usize,
    #[serde(default = "default_num_key_value_heads")]
    num_key_value_heads: usize,
    #[serde(default = "default_rope_theta")]
    rope_theta: f64,
    #[serde(default = "default_rope_local_base_freq")]
    rope_local_base_freq: f64,
    #[serde(default = "default_query_pre_attn_scalar")]
    query_pre_attn_scalar: f64,
    #[serde(default = "default_sliding_window")]
    sliding_window: usize,
    #[serde(default = "default_sliding_window_pattern")]
    sliding_window_pattern: usize,
    max_position_embeddings: Option<usize>,
    rope_scaling: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    tie_word_embeddings: Option<bool>,
    hidden_activation: Option<String>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    attn_logit_softcapping: Option<Value>,
    final_logit_softcapping: Option<Value>,
    use_bidirectional_attention: Option<bool>,
    #[serde(rename = "_sliding_window_pattern")]
    new_sliding_window_pattern: Option<usize>,
    layer_types: Option<Vec<String>>,
    rope_parameters: Option<Value>,
}

fn default_hidden_size() -> usize {
    1152
}
fn default_num_hidden_layers() -> usize {
    26
}
fn default_intermediate_size() -> usize {
    6912
}
fn default_num_attention_heads() -> usize {
    4
}
fn default_head_dim() -> usize {
    256
}
fn default_rms_norm_eps() -> f64 {
    1e-6
}
fn default_vocab_size() -> usize {
    262_144
}
fn default_num_key_value_heads() -> usize {
    1
}
fn default_rope_theta() -> f64 {
    1_000_000.0
}
fn default_rope_local_base_freq() -> f64 {
    10_000.0
}
fn default_query_pre_attn_scalar() -> f64 {
    256.0
}
fn default_sliding_window() -> usize {
    512
}
fn default_sliding_window_pattern() -> usize {
    6
}

/// Layers that norm before and after each block; every `pattern`-th sees everything, the others a
/// window.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemma3TextConfig {
    /// Extents.
    pub dims: Dims,
    /// The position encoding of the full layers.
    pub rope: RopeConfig,
    /// The position encoding of the sliding layers.
    pub local_rope: RopeConfig,
    /// Queries are scaled by this to the power of -1/2; above 0.
    pub query_pre_attn_scalar: f64,
    /// Positions a sliding layer sees; at least 1.
    pub window: usize,
    /// Distance of full layers; at least 1 and at most the number of layers.
    pub pattern: usize,
    /// What the config says of tying; the reference goes by the tensors instead.
    pub tied: Option<bool>,
}

impl Gemma3TextConfig {
    /// Every key of a `gemma3_text` config that this reader knows.
    pub(crate) fn keys() -> &'static [&'static str] {
        keys_of::<WireGemma3Text>()
    }

    /// Reads a `gemma3_text` config.
    ///
    /// # Errors
    /// [`EngineError::Config`] and [`EngineError::UnsupportedConfig`], naming the file and the key.
    pub fn read(file: &ConfigFile) -> Result<Self, EngineError> {
        let wire: WireGemma3Text = file.wire()?;
        let dims = Dims {
            hidden_size: wire.hidden_size,
            num_layers: wire.num_hidden_layers,
            intermediate_size: wire.intermediate_size,
            heads: wire.num_attention_heads,
            kv_heads: wire.num_key_value_heads,
            head_dim: wire.head_dim,
            vocab_size: wire.vocab_size,
            max_positions: wire.max_position_embeddings,
            eps: wire.rms_norm_eps,
        };
        let config = Self {
            dims: dims.checked(file)?,
            rope: rope(file, &wire)?,
            local_rope: RopeConfig::plain(wire.rope_local_base_freq),
            query_pre_attn_scalar: wire.query_pre_attn_scalar,
            window: wire.sliding_window,
            pattern: wire.sliding_window_pattern,
            tied: wire.tie_word_embeddings,
        };
        config.check(file)?;
        config.refuse_other_maths(file, &wire)?;
        Ok(config)
    }

    /// The kind of a layer counted from 0.
    pub fn kind(&self, layer: usize) -> LayerKind {
        if layer % self.pattern == self.pattern - 1 { LayerKind::Full } else { LayerKind::Sliding }
    }

    fn check(&self, file: &ConfigFile) -> Result<(), EngineError> {
        let layers = self.dims.num_layers;
        if !(1..=layers).contains(&self.pattern) {
            let wanted = format!("1 to num_hidden_layers = {layers}");
            return Err(file.unsupported("sliding_window_pattern", self.pattern, wanted));
        }
        if self.window == 0 || i32::try_from(self.window).is_err() {
            return Err(file.unsupported("sliding_window", self.window, "1 to 2147483647"));
        }
        if self.query_pre_attn_scalar.is_nan() || self.query_pre_attn_scalar <= 0.0 {
            let found = self.query_pre_attn_scalar;
            return Err(file.unsupported("query_pre_attn_scalar", found, "a number above 0"));
        }
        Ok(())
    }

    fn refuse_other_maths(
        &self,
        file: &ConfigFile,
        wire: &WireGemma3Text,
    ) -> Result<(), EngineError> {
        let gelu = ["gelu_pytorch_tanh".to_owned()];
        file.only("hidden_activation", wire.hidden_activation.as_ref(), &gelu)?;
        file.only("hidden_act", wire.hidden_act.as_ref(), &gelu)?;
        file.only("attention_bias", wire.attention_bias.as_ref(), &[false])?;
        file.only("attn_logit_softcapping", wire.attn_logit_softcapping.as_ref(), &[])?;
        file.only("final_logit_softcapping", wire.final_logit_softcapping.as_ref(), &[])?;
        let bidirectional = wire.use_bidirectional_attention.as_ref();
        file.only("use_bidirectional_attention", bidirectional, &[false])?;
        let pattern = wire.new_sliding_window_pattern.as_ref();
        file.only("_sliding_window_pattern", pattern, &[self.pattern])?;
        file.only("rope_parameters", wire.rope_parameters.as_ref(), &[])?;
        let Some(types) = &wire.layer_types else { return Ok(()) };
        let meant: Vec<&str> = (0..self.dims.num_layers).map(|i| self.kind(i).name()).collect();
        if *types != meant {
            let wanted = format!("what sliding_window_pattern = {} gives", self.pattern);
            return Err(file.unsupported("layer_types", format!("{types:?}"), wanted));
        }
        Ok(())
    }
}

/// The encoding of the full layers.
fn rope(file: &ConfigFile, wire: &WireGemma3Text) -> Result<RopeConfig, EngineError> {
    RopeConfig::read(
        file,
        &RopeKeys {
            theta: Some(wire.rope_theta),
            objects: &[("rope_scaling", wire.rope_scaling.as_ref())],
            max_positions: wire.max_position_embeddings,
            ..RopeKeys::default()
        },
    )
}
