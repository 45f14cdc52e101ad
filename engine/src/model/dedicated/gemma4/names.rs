//! Where a checkpoint keeps the text model, and what it holds besides: `sanitize` of
//! `mlx_lm/models/gemma4.py` and of `gemma4_text.py`.

use crate::config::{Gemma4TextConfig, KeyValues};
use crate::weights::Weights;

/// Parts of a multimodal checkpoint that text does not need.
const TOWERS: &[&str] = &[
    "vision_tower",
    "multi_modal_projector",
    "audio_tower",
    "embed_audio",
    "embed_vision",
    "vision_embedder",
];

/// Tensors of a text model that nothing computes with.
const UNUSED: &[&str] =
    &["self_attn.rotary_emb", "input_max", "input_min", "output_max", "output_min"];

/// Projections that a layer without keys and values of its own may still carry.
const KEY_VALUE: &[&str] = &[".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.k_norm"];

/// The module paths of a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct Names {
    model: &'static str,
    head: &'static str,
}

impl Names {
    /// Of `gemma4_text`.
    pub(in crate::model) const TEXT: Self = Self { model: "model", head: "lm_head" };

    /// Of `gemma4`, once [`Names::unwrap`] has given them.
    pub(in crate::model) const MULTIMODAL: Self =
        Self { model: "language_model.model", head: "language_model.lm_head" };

    /// Drops what a `gemma4` checkpoint holds besides the text model, and gives the published form of
    /// the names, `model.language_model.`, the form of mlx-lm's, `language_model.model.`.
    pub(super) fn unwrap(weights: &mut Weights) {
        let bare = |name: &str| name.strip_prefix("model.").unwrap_or(name).to_owned();
        weights.discard(|name| TOWERS.iter().any(|tower| bare(name).starts_with(tower)));
        weights.rename(|name| match name.strip_prefix("model.language_model.") {
            Some(rest) => format!("language_model.model.{rest}"),
            None => bare(name),
        });
    }

    /// The path of a module of the text model.
    pub(in crate::model) fn of(self, module: &str) -> String {
        format!("{}.{module}", self.model)
    }

    /// The path of the output projection.
    pub(in crate::model) fn head(self) -> &'static str {
        self.head
    }
}

/// Drops tensors of the text model that nothing reads.
pub(super) fn discard_unread(config: &Gemma4TextConfig, weights: &mut Weights) {
    let shares = |layer: usize| {
        let layer = config.layers.get(layer);
        layer.is_none_or(|layer| matches!(layer.key_values, KeyValues::Shared(_)))
    };
    weights.discard(|name| {
        UNUSED.iter().any(|part| name.contains(part))
            || KEY_VALUE.iter().any(|part| name.contains(part))
                && layer_of(name).is_some_and(shares)
    });
}

/// The layer a tensor belongs to.
fn layer_of(name: &str) -> Option<usize> {
    name.split_once("layers.")?.1.split('.').next()?.parse().ok()
}
