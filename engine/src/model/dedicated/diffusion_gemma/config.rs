//! `config.json` of a `diffusion_gemma` model: `ModelConfig` and `TextConfig` of
//! `optiq/vlm/_mlxvlm/models/diffusion_gemma/config.py`.

use std::collections::BTreeMap;

use super::decoding::{Decoding, WireDecoding};
use super::wire::{WireModel, WireRope, WireText};
use crate::config::{ConfigFile, Dims, LayerKind, keys_of};
use crate::error::EngineError;

/// A position encoding that `initialize_rope` of `gemma4/rope_utils.py` knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RopeKind {
    /// `nn.RoPE`.
    Default {
        /// The base of the geometric row of frequencies.
        base: f64,
    },
    /// `ProportionalRoPE`.
    Proportional {
        /// The base of the geometric row of frequencies.
        base: f64,
        /// Share of a head that turns.
        share: f64,
        /// Multiplies every period.
        factor: f64,
    },
}

/// Extents of the heads of one kind of layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
}

/// What the config says.
#[derive(Debug, Clone)]
pub(super) struct DiffusionGemmaConfig {
    /// The extents; those of heads are the sliding layers'.
    pub(super) dims: Dims,
    /// The heads of full layers.
    pub(super) full_heads: Heads,
    pub(super) kinds: Vec<LayerKind>,
    pub(super) sliding_rope: RopeKind,
    pub(super) full_rope: RopeKind,
    pub(super) attention_bias: bool,
    /// Positions a sliding layer sees while it reads; at least 1.
    pub(super) window: usize,
    pub(super) moe_intermediate_size: usize,
    pub(super) experts: usize,
    /// At least 1 and at most `experts`.
    pub(super) top_k: usize,
    /// Logits are bounded by this; above 0.
    pub(super) softcap: f64,
    /// Positions of a canvas; at least 1.
    pub(super) canvas_length: usize,
    /// Ids in the place of which the embedding of `pad_token` stands.
    pub(super) media_tokens: Vec<u32>,
    pub(super) pad_token: u32,
    pub(super) decoding: Decoding,
}

impl DiffusionGemmaConfig {
    /// Every key of the outer object that the reader knows.
    pub(super) fn keys() -> &'static [&'static str] {
        keys_of::<WireModel>()
    }

    /// Reads the config.
    ///
    /// # Errors
    /// [`EngineError::Config`] and [`EngineError::UnsupportedConfig`], naming the file and the key.
    pub(super) fn read(file: &ConfigFile) -> Result<Self, EngineError> {
        let outer: WireModel = file.wire()?;
        let text = file.section("text_config")?;
        let wire: WireText = text.wire()?;
        file.only("tie_word_embeddings", outer.tie_word_embeddings.as_ref(), &[true])?;
        refuse_other_maths(&text, &wire)?;
        let [sliding_rope, full_rope] = ropes(&text, wire.rope_parameters.as_ref())?;
        let heads = Heads { kv_heads: wire.num_key_value_heads, head_dim: wire.head_dim };
        let config = Self {
            dims: dims(&wire, heads).checked(&text)?,
            full_heads: Heads {
                kv_heads: wire.num_global_key_value_heads.unwrap_or(heads.kv_heads),
                head_dim: wire.global_head_dim.filter(|&dim| dim > 0).unwrap_or(heads.head_dim),
            },
            kinds: kinds(&text, &wire)?,
            sliding_rope,
            full_rope,
            attention_bias: wire.attention_bias,
            window: wire.sliding_window,
            moe_intermediate_size: wire.moe_intermediate_size,
            experts: wire.num_experts,
            top_k: wire.top_k_experts,
            softcap: wire.final_logit_softcapping,
            canvas_length: outer.canvas_length,
            media_tokens: [outer.image_token_id].into_iter().chain(outer.video_token_id).collect(),
            pad_token: pad_token(&text, wire.vocab_size)?,
            decoding: decoding(file)?,
        };
        config.check(file, &text, &wire)?;
        Ok(config)
    }

    fn check(
        &self,
        file: &ConfigFile,
        text: &ConfigFile,
        wire: &WireText,
    ) -> Result<(), EngineError> {
        dims(wire, self.full_heads).checked(text).map_err(|_| {
            let Heads { kv_heads, head_dim } = self.full_heads;
            let found = format!("{kv_heads} heads of {head_dim}");
            let wanted = "a divisor of num_attention_heads, of an even global_head_dim";
            text.unsupported("num_global_key_value_heads", found, wanted)
        })?;
        for (key, extent) in [
            ("sliding_window", self.window),
            ("moe_intermediate_size", self.moe_intermediate_size),
            ("num_experts", self.experts),
        ] {
            if extent == 0 || i32::try_from(extent).is_err() {
                return Err(text.unsupported(key, extent, "1 to 2147483647"));
            }
        }
        if !(1..=self.experts).contains(&self.top_k) {
            let wanted = format!("1 to num_experts = {}", self.experts);
            return Err(text.unsupported("top_k_experts", self.top_k, wanted));
        }
        if !(self.softcap > 0.0 && self.softcap.is_finite()) {
            let wanted = "a number above 0";
            return Err(text.unsupported("final_logit_softcapping", self.softcap, wanted));
        }
        if self.canvas_length == 0 || i32::try_from(self.canvas_length).is_err() {
            return Err(file.unsupported("canvas_length", self.canvas_length, "1 to 2147483647"));
        }
        Ok(())
    }

    /// The heads of a kind of layer.
    pub(super) fn heads(&self, kind: LayerKind) -> Heads {
        match kind {
            LayerKind::Full => self.full_heads,
            LayerKind::Sliding => {
                Heads { kv_heads: self.dims.kv_heads, head_dim: self.dims.head_dim }
            }
        }
    }

    /// The position encoding of a kind of layer.
    pub(super) fn rope(&self, kind: LayerKind) -> &RopeKind {
        match kind {
            LayerKind::Full => &self.full_rope,
            LayerKind::Sliding => &self.sliding_rope,
        }
    }
}

fn dims(wire: &WireText, heads: Heads) -> Dims {
    Dims {
        hidden_size: wire.hidden_size,
        num_layers: wire.num_hidden_layers,
        intermediate_size: wire.intermediate_size,
        heads: wire.num_attention_heads,
        kv_heads: heads.kv_heads,
        head_dim: heads.head_dim,
        vocab_size: wire.vocab_size,
        max_positions: Some(wire.max_position_embeddings),
        eps: wire.rms_norm_eps,
    }
}

fn refuse_other_maths(text: &ConfigFile, wire: &WireText) -> Result<(), EngineError> {
    let name = |name: &str| [name.to_owned()];
    text.only("model_type", wire.model_type.as_ref(), &name("diffusion_gemma_text"))?;
    text.only("hidden_activation", wire.hidden_activation.as_ref(), &name("gelu_pytorch_tanh"))?;
    text.only("tie_word_embeddings", wire.tie_word_embeddings.as_ref(), &[true])?;
    let bidirectional = wire.use_bidirectional_attention.as_ref();
    text.only("use_bidirectional_attention", bidirectional, &name("vision"))?;
    text.only("attention_k_eq_v", wire.attention_k_eq_v.as_ref(), &[true])?;
    text.only("enable_moe_block", wire.enable_moe_block.as_ref(), &[true])?;
    let per_layer = wire.hidden_size_per_layer_input.as_ref();
    text.only("hidden_size_per_layer_input", per_layer, &[0])?;
    text.only("num_kv_shared_layers", wire.num_kv_shared_layers.as_ref(), &[0])?;
    text.only("use_double_wide_mlp", wire.use_double_wide_mlp.as_ref(), &[false])
}

/// The kinds of the layers, as given or five sliding ones to a full one, the last one full.
fn kinds(text: &ConfigFile, wire: &WireText) -> Result<Vec<LayerKind>, EngineError> {
    let count = wire.num_hidden_layers;
    let Some(names) = &wire.layer_types else {
        let full = |layer| layer % 6 == 5 || layer + 1 == count;
        let kind = |layer| if full(layer) { LayerKind::Full } else { LayerKind::Sliding };
        return Ok((0..count).map(kind).collect());
    };
    if names.len() != count {
        let wanted = format!("num_hidden_layers = {count} of them");
        return Err(text.unsupported("layer_types", format!("{} names", names.len()), wanted));
    }
    let known = [LayerKind::Full, LayerKind::Sliding];
    let kind = |name: &String| {
        known.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let wanted = known.map(LayerKind::name).join(" or ");
            text.unsupported("layer_types", format!("`{name}`"), wanted)
        })
    };
    names.iter().map(kind).collect()
}

/// The encodings of sliding and full layers.
fn ropes(
    text: &ConfigFile,
    given: Option<&BTreeMap<String, WireRope>>,
) -> Result<[RopeKind; 2], EngineError> {
    let kinds = [LayerKind::Sliding, LayerKind::Full];
    let Some(given) = given else {
        return Ok([
            RopeKind::Default { base: 10_000.0 },
            RopeKind::Proportional { base: 1_000_000.0, share: 0.25, factor: 1.0 },
        ]);
    };
    if let Some(name) = given.keys().find(|name| kinds.iter().all(|kind| kind.name() != *name)) {
        return Err(text.error(format!("`rope_parameters.{name}` is read by nothing")));
    }
    let one = |kind: LayerKind| {
        rope(text, kind.name(), &given.get(kind.name()).cloned().unwrap_or_default())
    };
    Ok([one(kinds[0])?, one(kinds[1])?])
}

fn rope(text: &ConfigFile, layers: &str, wire: &WireRope) -> Result<RopeKind, EngineError> {
    let key = |name: &str| format!("rope_parameters.{layers}.{name}");
    let base = wire.rope_theta.unwrap_or(10_000.0);
    if !(base > 0.0 && base.is_finite()) {
        return Err(text.unsupported(&key("rope_theta"), base, "a number above 0"));
    }
    match wire.rope_type.as_deref().unwrap_or("default") {
        "default" => {
            // `nn.RoPE` turns whole heads and scales nothing.
            let share = wire.partial_rotary_factor.as_ref();
            text.only(&key("partial_rotary_factor"), share, &[1.0])?;
            text.only(&key("factor"), wire.factor.as_ref(), &[1.0])?;
            Ok(RopeKind::Default { base })
        }
        "proportional" => {
            let share = wire.partial_rotary_factor.unwrap_or(1.0);
            if !(0.0..=1.0).contains(&share) {
                return Err(text.unsupported(&key("partial_rotary_factor"), share, "0 to 1"));
            }
            let factor = wire.factor.unwrap_or(1.0);
            if !(factor > 0.0 && factor.is_finite()) {
                return Err(text.unsupported(&key("factor"), factor, "a number above 0"));
            }
            Ok(RopeKind::Proportional { base, share, factor })
        }
        other => {
            let found = format!("`{other}`");
            Err(text.unsupported(&key("rope_type"), found, "`default` or `proportional`"))
        }
    }
}

/// `pad_token_id` of the text config, 0 where there is none.
fn pad_token(text: &ConfigFile, vocab_size: usize) -> Result<u32, EngineError> {
    let Some(value) = text.get("pad_token_id") else { return Ok(0) };
    let id = value.as_u64().filter(|&id| id < vocab_size as u64);
    id.and_then(|id| u32::try_from(id).ok())
        .ok_or_else(|| text.unsupported("pad_token_id", value, "an id below vocab_size"))
}

fn decoding(file: &ConfigFile) -> Result<Decoding, EngineError> {
    if file.get("generation_config").is_none() {
        return Ok(Decoding::default());
    }
    let section = file.section("generation_config")?;
    let wire: WireDecoding = section.wire()?;
    Decoding::read(&section, wire)
}
