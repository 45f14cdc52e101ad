//! `model_type` qwen3: `ModelArgs` of `mlx_lm/models/qwen3.py`.

use serde::Deserialize;
use serde_json::Value;

use super::keys::keys_of;
use super::{Biases, ConfigFile, DenseConfig, Dims, LayerKind, RopeConfig, RopeKeys};
use crate::error::EngineError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireQwen3 {
    #[serde(rename = "model_type")]
    _model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    rms_norm_eps: f64,
    vocab_size: usize,
    num_key_value_heads: usize,
    max_position_embeddings: usize,
    head_dim: usize,
    tie_word_embeddings: bool,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    sliding_window: Option<usize>,
    #[serde(rename = "max_window_layers")]
    _max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
}

impl DenseConfig {
    /// Every key of a qwen3 config that this reader knows.
    pub(crate) fn qwen3_keys() -> &'static [&'static str] {
        keys_of::<WireQwen3>()
    }

    /// Reads a qwen3 config.
    ///
    /// # Errors
    /// [`EngineError::Config`] and [`EngineError::UnsupportedConfig`], naming the file and the key.
    pub fn read_qwen3(file: &ConfigFile) -> Result<Self, EngineError> {
        let wire: WireQwen3 = file.wire()?;
        refuse_other_maths(file, &wire)?;
        let rope = rope(file, &wire)?;
        let dims = Dims {
            hidden_size: wire.hidden_size,
            num_layers: wire.num_hidden_layers,
            intermediate_size: wire.intermediate_size,
            heads: wire.num_attention_heads,
            kv_heads: wire.num_key_value_heads,
            head_dim: wire.head_dim,
            vocab_size: wire.vocab_size,
            max_positions: Some(wire.max_position_embeddings),
            eps: wire.rms_norm_eps,
        };
        Ok(Self {
            dims: dims.checked(file)?,
            biases: Biases { attention: false, mlp: false },
            qk_norm: true,
            rope,
            tied: wire.tie_word_embeddings,
            layers: vec![LayerKind::Full; wire.num_hidden_layers],
            window: None,
        })
    }
}

/// `rope_parameters` gives what `rope_theta` and `rope_scaling` leave open, and may
/// not contradict what they say.
fn rope(file: &ConfigFile, wire: &WireQwen3) -> Result<RopeConfig, EngineError> {
    RopeConfig::read(
        file,
        &RopeKeys {
            theta: wire.rope_theta,
            objects: &[
                ("rope_scaling", wire.rope_scaling.as_ref()),
                ("rope_parameters", wire.rope_parameters.as_ref()),
            ],
            max_positions: Some(wire.max_position_embeddings),
            ..RopeKeys::default()
        },
    )
}

fn refuse_other_maths(file: &ConfigFile, wire: &WireQwen3) -> Result<(), EngineError> {
    file.only("hidden_act", wire.hidden_act.as_ref(), &["silu".into(), "swish".into()])?;
    file.only("attention_bias", wire.attention_bias.as_ref(), &[false])?;
    file.only("use_sliding_window", wire.use_sliding_window.as_ref(), &[false])?;
    if wire.use_sliding_window.is_none() {
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
    }
    for kind in wire.layer_types.iter().flatten() {
        file.only("layer_types", Some(kind), &["full_attention".into()])?;
    }
    Ok(())
}
