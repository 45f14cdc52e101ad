//! The norms of a [`Spec`](super::spec::Spec).

use mlx_rs::Array;

use super::spec::{NormKind, QkNorm, QkNormKind, QkPlace};
use crate::config::Dims;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::nn::{LayerNorm, RmsNorm};
use crate::ops;
use crate::place::Place;
use crate::weights::Weights;

/// A norm over the last axis.
pub(super) enum Norm {
    Rms(RmsNorm),
    Layer(LayerNorm),
}

impl Norm {
    /// The norm at a place, `width` wide.
    pub(super) fn load(
        weights: &mut Weights,
        place: &Place,
        kind: NormKind,
        width: usize,
        eps: f64,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let eps = eps as f32;
        let path = place.path();
        let weight = weights.floats(&format!("{path}.weight"), &[width])?;
        let has_bias = matches!(kind, NormKind::Layer { bias: true } | NormKind::LayerOnePlus);
        let bias =
            has_bias.then(|| weights.floats(&format!("{path}.bias"), &[width])).transpose()?;
        let forgotten = fault::is(fault, Fault::ForgottenOnePlus);
        Ok(match kind {
            NormKind::RmsOnePlus if !forgotten => Self::Rms(RmsNorm::one_plus(&weight, eps)?),
            NormKind::LayerOnePlus if !forgotten => {
                Self::Layer(LayerNorm::one_plus(&weight, bias, eps)?)
            }
            NormKind::Rms | NormKind::RmsOnePlus => Self::Rms(RmsNorm::new(weight, eps)),
            NormKind::Layer { .. } | NormKind::LayerOnePlus => {
                Self::Layer(LayerNorm::new(weight, bias, eps))
            }
        })
    }

    pub(super) fn forward(&self, x: &Array) -> Result<Array, EngineError> {
        match self {
            Self::Rms(norm) => norm.forward(x),
            Self::Layer(norm) => norm.forward(x),
        }
    }
}

/// The norm of queries or of keys.
pub(super) enum HeadNorm {
    Shared(Norm),
    /// `weight * layer_norm(x)`, with a row of the weight `[heads, head_dim]` for each head.
    ByHead {
        weight: Array,
        eps: f32,
    },
}

impl HeadNorm {
    /// The norm of `heads` heads at a place.
    pub(super) fn load(
        weights: &mut Weights,
        place: &Place,
        spec: &QkNorm,
        heads: usize,
        dims: &Dims,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let (width, eps) = (dims.head_dim, dims.eps);
        let path = place.path();
        let weight = match spec.kind {
            QkNormKind::Shared(kind) => {
                let width = if spec.place == QkPlace::Width { heads * width } else { width };
                return Ok(Self::Shared(Norm::load(weights, place, kind, width, eps, fault)?));
            }
            QkNormKind::Matrix => weights.floats(&format!("{path}.weight"), &[heads, width])?,
            QkNormKind::Stacked => {
                let row = |head| weights.floats(&format!("{path}.norms.{head}.weight"), &[width]);
                let rows = (0..heads).map(row).collect::<Result<Vec<_>, _>>()?;
                let stacked = ops::stack(&rows.iter().collect::<Vec<_>>(), 0)?;
                ops::eval([&stacked])?;
                stacked
            }
        };
        Ok(Self::ByHead { weight, eps: eps as f32 })
    }

    /// The norm, where it is one `nn.RMSNorm` for all heads.
    pub(super) fn rms(&self) -> Option<&RmsNorm> {
        match self {
            Self::Shared(Norm::Rms(norm)) => Some(norm),
            _ => None,
        }
    }

    pub(super) fn forward(&self, x: &Array) -> Result<Array, EngineError> {
        match self {
            Self::Shared(norm) => norm.forward(x),
            Self::ByHead { weight, eps } => {
                ops::multiply(weight, &ops::layer_norm(x, None, None, *eps)?)
            }
        }
    }
}
