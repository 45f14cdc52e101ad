//! What llama and qwen3 have in common.

use super::{Dims, RopeConfig};

/// A stack of layers that norm before each block and add after it.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseConfig {
    /// Extents.
    pub dims: Dims,
    /// Which projections have a bias.
    pub biases: Biases,
    /// Whether each query and key head is normed.
    pub qk_norm: bool,
    /// The position encoding of every layer.
    pub rope: RopeConfig,
    /// Whether the embedding is the output projection too.
    pub tied: bool,
    /// One a layer; at least one is [`LayerKind::Full`].
    pub layers: Vec<LayerKind>,
    /// Positions a sliding layer sees; there where any layer slides.
    pub window: Option<usize>,
}

/// Which projections have a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Biases {
    /// The four of the attention block.
    pub attention: bool,
    /// The three of the feed-forward block.
    pub mlp: bool,
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
