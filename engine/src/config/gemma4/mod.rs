//! `model_type` `gemma4_text` (`mlx_lm/models/gemma4_text.py`), and `gemma4`, which holds one under
//! `text_config` (`mlx_lm/models/gemma4.py`).

mod layers;
mod rope;
mod wire;

pub use layers::{Gemma4Layer, KeyValues};

use wire::{WireGemma4, WireGemma4Text};

use super::keys::keys_of;
use super::quantization::KEYS as QUANTIZATION_KEYS;
use super::{ConfigFile, Dims};
use crate::error::EngineError;

/// A `gemma4_text` model, each layer resolved to what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemma4TextConfig {
    /// Extents; heads as the sliding layers have them, and the feed-forward block of layers that
    /// keep keys and values of their own.
    pub dims: Dims,
    /// One a layer. Those with [`KeyValues::Shared`] stand last.
    pub layers: Vec<Gemma4Layer>,
    /// Width of each layer's own input beside the residual stream, where there is one.
    pub per_layer_input: Option<PerLayerInput>,
    /// Positions a sliding layer sees; at least 1.
    pub window: usize,
    /// Logits are squeezed to plus or minus this; above 0.
    pub final_softcap: Option<f64>,
    /// Whether the embedding is the output projection too.
    pub tied: bool,
    /// The experts of every layer, where there are any.
    pub experts: Option<Gemma4Experts>,
}

/// The second embedding, of which each layer gets a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerLayerInput {
    /// Rows of the table; at least as many as the vocabulary has.
    pub vocab_size: usize,
    /// Width of a layer's slice.
    pub width: usize,
}

/// Routed experts beside the feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemma4Experts {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a token visits; at least 1 and at most `count`.
    pub top_k: usize,
    /// Inner width of an expert.
    pub intermediate_size: usize,
}

impl Gemma4TextConfig {
    /// Every key of a `gemma4_text` config that this reader knows.
    pub(crate) fn text_keys() -> &'static [&'static str] {
        keys_of::<WireGemma4Text>()
    }

    /// Every key of a `gemma4` config that this reader knows, but for those under `text_config`.
    pub(crate) fn keys() -> &'static [&'static str] {
        keys_of::<WireGemma4>()
    }

    /// Reads a `gemma4_text` config.
    ///
    /// # Errors
    /// [`EngineError::Config`] and [`EngineError::UnsupportedConfig`], naming the file and the key.
    pub fn read_text(file: &ConfigFile) -> Result<Self, EngineError> {
        let wire: WireGemma4Text = file.wire()?;
        refuse_other_maths(file, &wire)?;
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
        }
        .checked(file)?;
        let window = wire.sliding_window;
        if window == 0 || i32::try_from(window).is_err() {
            return Err(file.unsupported("sliding_window", window, "1 to 2147483647"));
        }
        if let Some(softcap) =
            wire.final_logit_softcapping.filter(|cap| cap.is_nan() || *cap <= 0.0)
        {
            let wanted = "a number above 0, or null";
            return Err(file.unsupported("final_logit_softcapping", softcap, wanted));
        }
        Ok(Self {
            layers: layers::read(file, &wire)?,
            per_layer_input: per_layer_input(file, &wire)?,
            window,
            final_softcap: wire.final_logit_softcapping,
            tied: wire.tie_word_embeddings,
            experts: experts(file, &wire)?,
            dims,
        })
    }

    /// Reads a `gemma4` config: its text model.
    ///
    /// # Errors
    /// As [`Gemma4TextConfig::read_text`]; and for a `text_config` that says another vocabulary size
    /// than the outer object, which the reference takes the size from.
    pub fn read(file: &ConfigFile) -> Result<Self, EngineError> {
        let wire: WireGemma4 = file.wire()?;
        let text = file.section("text_config")?;
        if let Some(key) = QUANTIZATION_KEYS.iter().find(|key| text.get(key).is_some()) {
            return Err(text.unsupported(key, "there", "beside `text_config`, not in it"));
        }
        let config = Self::read_text(&text)?;
        if config.dims.vocab_size != wire.vocab_size {
            let wanted = format!("vocab_size = {}", wire.vocab_size);
            return Err(text.unsupported("vocab_size", config.dims.vocab_size, wanted));
        }
        file.only("tie_word_embeddings", wire.tie_word_embeddings.as_ref(), &[config.tied])?;
        Ok(config)
    }
}

fn per_layer_input(
    file: &ConfigFile,
    wire: &WireGemma4Text,
) -> Result<Option<PerLayerInput>, EngineError> {
    let Some(width) = wire.hidden_size_per_layer_input.filter(|width| *width > 0) else {
        return Ok(None);
    };
    let vocab_size = wire.vocab_size_per_layer_input;
    if vocab_size < wire.vocab_size {
        let wanted = format!("at least vocab_size = {}", wire.vocab_size);
        return Err(file.unsupported("vocab_size_per_layer_input", vocab_size, wanted));
    }
    Ok(Some(PerLayerInput { vocab_size, width }))
}

fn experts(file: &ConfigFile, wire: &WireGemma4Text) -> Result<Option<Gemma4Experts>, EngineError> {
    if !wire.enable_moe_block {
        return Ok(None);
    }
    let needed = |key: &str, value: Option<usize>| {
        let value = value.filter(|value| *value > 0);
        value.ok_or_else(|| {
            file.error(format!("`{key}` is missing or 0, but enable_moe_block is true"))
        })
    };
    let experts = Gemma4Experts {
        count: needed("num_experts", wire.num_experts)?,
        top_k: needed("top_k_experts", wire.top_k_experts)?,
        intermediate_size: needed("moe_intermediate_size", wire.moe_intermediate_size)?,
    };
    if experts.top_k > experts.count {
        let wanted = format!("1 to num_experts = {}", experts.count);
        return Err(file.unsupported("top_k_experts", experts.top_k, wanted));
    }
    Ok(Some(experts))
}

fn refuse_other_maths(file: &ConfigFile, wire: &WireGemma4Text) -> Result<(), EngineError> {
    let types = ["gemma4_text".to_owned(), "gemma4_unified_text".to_owned()];
    file.only("model_type", wire.model_type.as_ref(), &types)?;
    file.only("attention_bias", wire.attention_bias.as_ref(), &[false])?;
    let gelu = ["gelu_pytorch_tanh".to_owned()];
    file.only("hidden_activation", wire.hidden_activation.as_ref(), &gelu)?;
    // Images see each other both ways under `vision`; text does not.
    let bidirectional = wire.use_bidirectional_attention.as_ref();
    file.only("use_bidirectional_attention", bidirectional, &["vision".into(), false.into()])
}
