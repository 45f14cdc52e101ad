//! What llama and qwen3 have in common.

use super::Dims;

/// A stack of layers that norm before each block and add after it.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseConfig {
    /// Extents.
    pub dims: Dims,
    /// Whether the four attention projections have a bias.
    pub attention_bias: bool,
    /// Whether the three feed-forward projections have a bias.
    pub mlp_bias: bool,
    /// Whether each query and key head is normed.
    pub qk_norm: bool,
    /// Whether rope pairs neighbours.
    pub rope_traditional: bool,
    /// Base of rope.
    pub rope_base: f64,
    /// What rope multiplies positions by.
    pub rope_scale: f64,
    /// Whether the embedding is the output projection too.
    pub tied: bool,
    /// One a layer; at least one is [`LayerKind::Full`].
    pub layers: Vec<LayerKind>,
    /// Positions a sliding layer sees; there where any layer slides.
    pub window: Option<usize>,
}

/// What a layer may attend to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Every earlier position.
    Full,
    /// A window of the latest positions.
    Sliding,
}

impl LayerKind {
    /// The kind's name in `layer_types`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Sliding => "sliding_attention",
        }
    }
}
