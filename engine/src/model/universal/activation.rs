//! The functions within feed-forward blocks.

use mlx_rs::Array;

use super::spec::Activation;
use super::xielu::Xielu;
use crate::error::EngineError;
use crate::ops;
use crate::place::Place;
use crate::weights::Weights;

/// The function of an [`Activation`].
pub(super) enum Function {
    Fixed(fn(&Array) -> Result<Array, EngineError>),
    Xielu(Xielu),
}

impl Function {
    /// The function of the feed-forward block at a place.
    pub(super) fn load(
        activation: Activation,
        weights: &mut Weights,
        mlp: &Place,
    ) -> Result<Self, EngineError> {
        Ok(match activation {
            Activation::Silu => Self::Fixed(ops::silu),
            Activation::Gelu => Self::Fixed(ops::gelu),
            Activation::GeluApprox => Self::Fixed(ops::gelu_approx),
            Activation::Relu2 => Self::Fixed(ops::relu2),
            Activation::Xielu => Self::Xielu(Xielu::load(weights, mlp)?),
        })
    }

    /// The function on any shape, in x's dtype.
    pub(super) fn apply(&self, x: &Array) -> Result<Array, EngineError> {
        match self {
            Self::Fixed(function) => function(x),
            Self::Xielu(xielu) => xielu.apply(x),
        }
    }
}
