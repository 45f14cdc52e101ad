//! `model_type` `qwen3_5` and `qwen3_5_moe`: `TextModelArgs` of `mlx_lm/models/qwen3_5.py`, at the top of the file or
//! under `text_config`.

mod rope;
mod wire;

use std::sync::LazyLock;

use wire::{WireText, WireWrapper};

use super::keys::keys_of;
use super::quantization::KEYS as QUANTIZATION_KEYS;
use super::{ConfigFile, Dims, RopeConfig};
use crate::error::EngineError;

/// A `qwen3_5` model: recurrent layers, and attention in every `interval`-th.
#[derive(Debug, Clone, PartialEq)]
pub struct Qwen35Config {
    /// Extents; the heads are those of the attention layers.
    pub dims: Dims,
    /// Extents of the recurrent layers.
    pub linear: DeltaDims,
    /// Distance of attention layers; at least 2 and at most the number of layers.
    pub interval: usize,
    /// Whether the projections of the attention layers have a bias.
    pub attention_bias: bool,
    /// The position encoding of the attention layers.
    pub rope: RopeConfig,
    /// Whether the embedding is the output projection too.
    pub tied: bool,
    /// The experts of every layer, where there are any.
    pub experts: Option<Qwen35Experts>,
}

/// Routed experts and the one that every token goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qwen35Experts {
    /// Routed experts of a layer.
    pub count: usize,
    /// Those that a token goes to; at least 1 and at most `count`.
    pub picks: usize,
    /// Inner width of one.
    pub width: usize,
    /// Inner width of the one that every token goes through.
    pub shared_width: usize,
    /// Whether the weights of the picked ones are divided by their sum.
    pub normalised: bool,
}

/// Extents of a gated delta net.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaDims {
    /// Heads of queries and keys; divides `value_heads`.
    pub key_heads: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// Width of a query or key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
    /// Positions the convolution sees; at least 2.
    pub taps: usize,
}

impl DeltaDims {
    /// Width of all keys.
    pub fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Width of all values.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }
}

impl Qwen35Config {
    /// Every key of a `qwen3_5` config that this reader knows, of the text model and around it.
    pub(crate) fn keys() -> &'static [&'static str] {
        static KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
            let text = keys_of::<WireText>();
            let around = keys_of::<WireWrapper>().iter().filter(|key| !text.contains(key));
            text.iter().chain(around).copied().collect()
        });
        &KEYS
    }

    /// Reads a `qwen3_5` config.
    ///
    /// # Errors
    /// [`EngineError::Config`] and [`EngineError::UnsupportedConfig`], naming the file and the key.
    pub fn read(file: &ConfigFile) -> Result<Self, EngineError> {
        if file.get("text_config").is_none() {
            return Self::read_text(file);
        }
        let wrapper: WireWrapper = file.wire()?;
        let text = file.section("text_config")?;
        if let Some(key) = QUANTIZATION_KEYS.iter().find(|key| text.get(key).is_some()) {
            return Err(text.unsupported(key, "there", "beside `text_config`, not in it"));
        }
        let config = Self::read_text(&text)?;
        file.only("tie_word_embeddings", wrapper.tie_word_embeddings.as_ref(), &[config.tied])?;
        Ok(config)
    }

    fn read_text(file: &ConfigFile) -> Result<Self, EngineError> {
        let wire: WireText = file.wire()?;
        refuse_other_maths(file, &wire)?;
        let head_dim = wire.hidden_size.checked_div(wire.num_attention_heads).unwrap_or(0);
        let dims = Dims {
            hidden_size: wire.hidden_size,
            num_layers: wire.num_hidden_layers,
            intermediate_size: wire.intermediate_size,
            heads: wire.num_attention_heads,
            kv_heads: wire.num_key_value_heads,
            head_dim: wire.head_dim.unwrap_or(head_dim),
            vocab_size: wire.vocab_size,
            max_positions: Some(wire.max_position_embeddings),
            eps: wire.rms_norm_eps,
        }
        .checked(file)?;
        let config = Self {
            linear: linear(file, &wire)?,
            interval: wire.full_attention_interval,
            attention_bias: wire.attention_bias,
            rope: rope::read(file, &wire, dims.head_dim)?,
            tied: wire.tie_word_embeddings,
            experts: experts(file, &wire)?,
            dims,
        };
        config.check_layers(file, &wire)?;
        Ok(config)
    }

    /// Whether a layer, counted from 0, is recurrent.
    pub fn is_linear(&self, layer: usize) -> bool {
        !(layer + 1).is_multiple_of(self.interval)
    }

    /// The reference takes its masks from a layer of each kind, so there must be one.
    fn check_layers(&self, file: &ConfigFile, wire: &WireText) -> Result<(), EngineError> {
        let layers = self.dims.num_layers;
        if !(2..=layers).contains(&self.interval) {
            let wanted = format!("2 to num_hidden_layers = {layers}");
            return Err(file.unsupported("full_attention_interval", self.interval, wanted));
        }
        let Some(types) = &wire.layer_types else { return Ok(()) };
        let kind = |i| if self.is_linear(i) { "linear_attention" } else { "full_attention" };
        let meant: Vec<&str> = (0..layers).map(kind).collect();
        if *types != meant {
            let wanted = format!("what full_attention_interval = {} gives", self.interval);
            return Err(file.unsupported("layer_types", format!("{types:?}"), wanted));
        }
        Ok(())
    }
}

fn linear(file: &ConfigFile, wire: &WireText) -> Result<DeltaDims, EngineError> {
    let extents = [
        ("linear_num_key_heads", wire.linear_num_key_heads, 1),
        ("linear_num_value_heads", wire.linear_num_value_heads, 1),
        ("linear_key_head_dim", wire.linear_key_head_dim, 1),
        ("linear_value_head_dim", wire.linear_value_head_dim, 1),
        // With one tap the reference would keep every input as the newest ones.
        ("linear_conv_kernel_dim", wire.linear_conv_kernel_dim, 2),
    ];
    for (key, extent, least) in extents {
        if !(least..1 << 20).contains(&extent) {
            return Err(file.unsupported(key, extent, format!("{least} to 1048575")));
        }
    }
    if !wire.linear_num_value_heads.is_multiple_of(wire.linear_num_key_heads) {
        let wanted = format!("a multiple of linear_num_key_heads = {}", wire.linear_num_key_heads);
        return Err(file.unsupported(
            "linear_num_value_heads",
            wire.linear_num_value_heads,
            wanted,
        ));
    }
    Ok(DeltaDims {
        key_heads: wire.linear_num_key_heads,
        value_heads: wire.linear_num_value_heads,
        key_dim: wire.linear_key_head_dim,
        value_dim: wire.linear_value_head_dim,
        taps: wire.linear_conv_kernel_dim,
    })
}

fn experts(file: &ConfigFile, wire: &WireText) -> Result<Option<Qwen35Experts>, EngineError> {
    let count = wire.num_experts;
    if count == 0 {
        return Ok(None);
    }
    let extents = [
        ("num_experts", count, i32::MAX as usize),
        ("num_experts_per_tok", wire.num_experts_per_tok, count),
        ("moe_intermediate_size", wire.moe_intermediate_size, i32::MAX as usize),
        (
            "shared_expert_intermediate_size",
            wire.shared_expert_intermediate_size,
            i32::MAX as usize,
        ),
    ];
    for (key, extent, most) in extents {
        if !(1..=most).contains(&extent) {
            return Err(file.unsupported(key, extent, format!("1 to {most}")));
        }
    }
    Ok(Some(Qwen35Experts {
        count,
        picks: wire.num_experts_per_tok,
        width: wire.moe_intermediate_size,
        shared_width: wire.shared_expert_intermediate_size,
        normalised: wire.norm_topk_prob,
    }))
}

fn refuse_other_maths(file: &ConfigFile, wire: &WireText) -> Result<(), EngineError> {
    let types = ["qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"];
    file.only("model_type", wire.model_type.as_ref(), &types.map(str::to_owned))?;
    file.only("decoder_sparse_step", wire.decoder_sparse_step.as_ref(), &[1])?;
    if let Some(layers) = wire.mlp_only_layers.as_ref().filter(|layers| !layers.is_empty()) {
        return Err(file.unsupported("mlp_only_layers", format!("{layers:?}"), "[]"));
    }
    file.only("hidden_act", wire.hidden_act.as_ref(), &["silu".to_owned()])?;
    file.only("attn_output_gate", wire.attn_output_gate.as_ref(), &[true])?;
    file.only("mamba_ssm_dtype", wire.mamba_ssm_dtype.as_ref(), &["float32".to_owned()])
}
