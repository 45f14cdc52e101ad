//! `mlx_lm/models/exaone4.py`. Where layers slide, the full ones know no positions.

use serde::Deserialize;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::{only_kinds, window};
use crate::config::{ConfigFile, Extents, HeadDim, LayerKind};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, FeedForward, Head, LayerSpec, MlpSpec, NormKind, QkNorm,
    QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "exaone4", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { head_dim: HeadDim::Needed, needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes { default_theta: None, may_be_traditional: false, ..Ropes::LLAMA },
    neutral: &[("hidden_act", SILU)],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    tie_word_embeddings: bool,
    sliding_window: Option<usize>,
    sliding_window_pattern: Option<String>,
    // The reference reads none of the following; they are taken only where they change nothing.
    layer_types: Option<Vec<String>>,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let attention = AttentionSpec {
        qk_norm: Some(QkNorm::by_head(QkPlace::BeforeTranspose, NormKind::Rms)),
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let layer = LayerSpec::new(Block::POST, attention, FeedForward::Dense(mlp));
    let kinds = kinds(file, &wire, dims.num_layers)?;
    let mixed = kinds.contains(&LayerKind::Sliding);
    let of_kind = |kind| {
        let mut layer = LayerSpec { kind, ..layer.clone() };
        if mixed && kind == LayerKind::Full {
            layer.attention.rope = None;
        }
        layer
    };
    let layers = kinds.into_iter().map(of_kind).collect();
    Ok(Spec {
        window: wire.sliding_window,
        ..Spec::new(dims, layers, Head::tied_if(wire.tie_word_embeddings))
    })
}

/// `sliding_window_pattern`: `L` slides and `G` sees everything, again and again; null, all see
/// everything.
fn kinds(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<Vec<LayerKind>, EngineError> {
    let pattern = wire.sliding_window_pattern.as_deref().filter(|pattern| !pattern.is_empty());
    let kinds = match pattern {
        None => {
            file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
            vec![LayerKind::Full; layers]
        }
        Some(pattern) => {
            let positions = wire
                .sliding_window
                .ok_or_else(|| file.error("`sliding_window` is missing, but layers slide"))?;
            window(file, positions)?;
            by_pattern(file, pattern, layers)?
        }
    };
    only_kinds(file, wire.layer_types.as_ref(), &kinds, "sliding_window_pattern")?;
    Ok(kinds)
}

/// The reference looks up the first layer of each kind, so that both must be there.
fn by_pattern(
    file: &ConfigFile,
    pattern: &str,
    layers: usize,
) -> Result<Vec<LayerKind>, EngineError> {
    let kind = |letter| match letter {
        'L' => Some(LayerKind::Sliding),
        'G' => Some(LayerKind::Full),
        _ => None,
    };
    let kinds: Option<Vec<LayerKind>> = pattern.chars().cycle().take(layers).map(kind).collect();
    kinds
        .filter(|kinds| [LayerKind::Full, LayerKind::Sliding].iter().all(|k| kinds.contains(k)))
        .ok_or_else(|| {
            let wanted = "null, or letters `L` and `G`, both within the layers";
            file.unsupported("sliding_window_pattern", format!("`{pattern}`"), wanted)
        })
}
