//! `mlx_lm/models/olmo3.py`. Its rope scaling is for the full layers only.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, rope_of};
use crate::config::{ConfigFile, Extents, LayerKind, RopeConfig, RopeKeys, layer_kinds};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, NormKind, QkNorm,
    QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "olmo3", keys, spec };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    sliding_window: usize,
    rope_theta: f64,
    #[serde(default)]
    attention_bias: bool,
    layer_types: Option<Vec<String>>,
    rope_scaling: Option<Value>,
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference does not read it; it is taken only where it changes nothing.
    hidden_act: Option<String>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&Extents::LLAMA)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = Extents::LLAMA.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    let theta = Some(wire.rope_theta);
    let keys = RopeKeys { theta, max_positions: dims.max_positions, ..RopeKeys::default() };
    let full = rope_of(file, &keys, wire.rope_scaling.as_ref(), None)?;
    let layer = |kind| {
        let rope = match kind {
            LayerKind::Full => full.clone(),
            LayerKind::Sliding => RopeConfig::plain(wire.rope_theta),
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
