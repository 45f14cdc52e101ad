//! `model_type` llama: `ModelArgs` of `mlx_lm/models/llama.py`.

use serde::Deserialize;
use serde_json::Value;

use super::keys::keys_of;
use super::{Biases, ConfigFile, DenseConfig, Dims, LayerKind, RopeConfig, RopeKeys};
use crate::error::EngineError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct WireLlama {
    #[serde(rename = "model_type")]
    _model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    rms_norm_eps: f64,
    vocab_size: usize,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    num_key_value_heads: Option<usize>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    #[serde(default = "default_tied")]
    tie_word_embeddings: bool,
    layer_types: Option<Vec<String>>,
    sliding_window: Option<usize>,
    // The reference does not read these two; transformers does.
    rope_parameters: Option<Value>,
    partial_rotary_factor: Option<f64>,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    pretraining_tp: Option<u32>,
    rope_interleaved: Option<bool>,
}

fn default_tied() -> bool {
    true
}

impl DenseConfig {
    /// Every key of a llama config that this reader knows.
    pub(crate) fn llama_keys() -> &'static [&'static str] {
        keys_of::<WireLlama>()
    }

    /// Reads a llama config.
    ///
    /// # Errors
    /// [`EngineError::Config`] and [`EngineError::UnsupportedConfig`], naming the file and the key.
    pub fn read_llama(file: &ConfigFile) -> Result<Self, EngineError> {
        let wire: WireLlama = file.wire()?;
        refuse_other_maths(file, &wire)?;
        let layers = layer_kinds(file, &wire)?;
        let heads = wire.num_attention_heads;
        let head_dim = wire.head_dim.filter(|dim| *dim != 0);
        let dims = Dims {
            hidden_size: wire.hidden_size,
            num_layers: wire.num_hidden_layers,
            intermediate_size: wire.intermediate_size,
            heads,
            kv_heads: wire.num_key_value_heads.unwrap_or(heads),
            head_dim: head_dim.or(wire.hidden_size.checked_div(heads)).unwrap_or(0),
            vocab_size: wire.vocab_size,
            max_positions: wire.max_position_embeddings,
            eps: wire.rms_norm_eps,
        };
        Ok(Self {
            dims: dims.checked(file)?,
            biases: Biases { attention: wire.attention_bias, mlp: wire.mlp_bias },
            qk_norm: false,
            rope: rope(file, &wire)?,
            tied: wire.tie_word_embeddings,
            layers,
            window: wire.sliding_window,
        })
    }
}

fn rope(file: &ConfigFile, wire: &WireLlama) -> Result<RopeConfig, EngineError> {
    RopeConfig::read(
        file,
        &RopeKeys {
            theta: wire.rope_theta,
            default_theta: Some(10_000.0),
            partial: wire.partial_rotary_factor,
            objects: &[
                ("rope_scaling", wire.rope_scaling.as_ref()),
                ("rope_parameters", wire.rope_parameters.as_ref()),
            ],
            max_positions: wire.max_position_embeddings,
            traditional: wire.rope_traditional,
            ..RopeKeys::default()
        },
    )
}

fn refuse_other_maths(file: &ConfigFile, wire: &WireLlama) -> Result<(), EngineError> {
    file.only("hidden_act", wire.hidden_act.as_ref(), &["silu".into(), "swish".into()])?;
    file.only("pretraining_tp", wire.pretraining_tp.as_ref(), &[1])?;
    file.only("rope_interleaved", wire.rope_interleaved.as_ref(), &[wire.rope_traditional])
}

fn layer_kinds(file: &ConfigFile, wire: &WireLlama) -> Result<Vec<LayerKind>, EngineError> {
    let Some(types) = &wire.layer_types else {
        // A window without sliding layers is one that the reference never opens.
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
        return Ok(vec![LayerKind::Full; wire.num_hidden_layers]);
    };
    let kinds: Vec<LayerKind> = types
        .iter()
        .map(|kind| match kind.as_str() {
            "full_attention" => Ok(LayerKind::Full),
            "sliding_attention" => Ok(LayerKind::Sliding),
            other => {
                let wanted = "`full_attention` or `sliding_attention`";
                Err(file.unsupported("layer_types", format!("`{other}`"), wanted))
            }
        })
        .collect::<Result<_, _>>()?;
    if kinds.len() != wire.num_hidden_layers {
        let found = format!("{} entries long", kinds.len());
        let wanted = format!("num_hidden_layers = {} entries", wire.num_hidden_layers);
        return Err(file.unsupported("layer_types", found, wanted));
    }
    if !kinds.contains(&LayerKind::Full) {
        let wanted = "at least one `full_attention`";
        return Err(file.unsupported("layer_types", "all `sliding_attention`", wanted));
    }
    if kinds.contains(&LayerKind::Sliding) && wire.sliding_window.is_none_or(|window| window == 0) {
        return Err(file.error("`sliding_window` is missing, but layers slide"));
    }
    Ok(kinds)
}
