//! `mlx_lm/models/olmo3.py`. Its rope scaling is for the full layers only.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use crate::config::{ConfigFile, Extents, LayerKind, RopeConfig, layer_kinds};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, NormKind, QkNorm,
    QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "olmo3", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents::LLAMA,
    rope: Ropes { default_theta: None, may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[("hidden_act", SILU)],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    sliding_window: usize,
    #[serde(default)]
    attention_bias: bool,
    layer_types: Option<Vec<String>>,
    #[serde(default)]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let layer = |kind| {
        let rope = match kind {
            LayerKind::Full => rope.clone(),
            LayerKind::Sliding => RopeConfig::plain(rope.base),
        };
        let attention = AttentionSpec {
            input_bias: wire.attention_bias,
            output_bias: wire.attention_bias,
            qk_norm: Some(QkNorm::by_head(QkPlace::Width, NormKind::Rms)),
            ..AttentionSpec::new(&dims, rope)
        };
        let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
        LayerSpec { kind, ..LayerSpec::new(Block::POST, attention, FeedForward::Dense(mlp)) }
    };
    let layers = kinds(file, &wire, dims.num_layers)?.into_iter().map(layer).collect();
    Ok(Spec {
        window: Some(wire.sliding_window),
        ..Spec::new(dims, layers, Head::tied_if(wire.tie_word_embeddings))
    })
}

/// `layer_types`, by default three sliding layers before each full one. The reference looks up the
/// first layer of each kind, so that both must be there.
fn kinds(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<Vec<LayerKind>, EngineError> {
    let by_default = |i| if i % 4 == 0 { LayerKind::Full } else { LayerKind::Sliding };
    let default = || (1..=layers).map(|i| by_default(i).name().to_owned()).collect();
    let types = wire.layer_types.clone().unwrap_or_else(default);
    let kinds = layer_kinds(file, &types, layers, Some(wire.sliding_window))?;
    if !kinds.contains(&LayerKind::Sliding) {
        let wanted = "at least one `sliding_attention`";
        return Err(file.unsupported("layer_types", "all `full_attention`", wanted));
    }
    Ok(kinds)
}
