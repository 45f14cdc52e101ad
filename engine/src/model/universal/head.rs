//! The output projection and what is done to its logits.

use mlx_rs::{Array, Dtype};

use super::spec::{Drop, Head, LogitScale, Spec};
use crate::config::ConfigFile;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::model::HeadWeight;
use crate::nn::{Embedding, Linear};
use crate::ops;
use crate::taps::TapSink;
use crate::weights::Weights;

/// The last step of a model.
pub(super) struct OutputHead {
    /// None where the embedding is the output projection too.
    projection: Option<Linear>,
    scale: LogitScale,
    fault: Option<Fault>,
}

impl OutputHead {
    /// The head of a descriptor; `dtype` is that of the embedded tokens.
    pub(super) fn load(
        file: &ConfigFile,
        spec: &Spec,
        weights: &mut Weights,
        dtype: Dtype,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let shape = [spec.dims.vocab_size, spec.dims.hidden_size];
        let own = match spec.head {
            Head::Tied => None,
            Head::Own { path, bias } => Some((path, bias)),
            // `sanitize` goes by the tensor, not by the config.
            Head::AsStored { tied } => {
                let stored = weights.has("lm_head.weight");
                if tied == Some(false) && !stored {
                    let wanted = "true, or a tensor lm_head.weight";
                    return Err(file.unsupported("tie_word_embeddings", false, wanted));
                }
                stored.then_some(("lm_head", false))
            }
        };
        let projection = match own {
            Some((path, bias)) => Some(weights.linear(path, shape, bias)?),
            None => fault::blank_head(fault, shape, dtype)?,
        };
        Ok(Self { projection, scale: spec.logits, fault })
    }

    /// h `[batch, n, hidden]` to logits `[batch, n, vocab]`.
    pub(super) fn forward(
        &self,
        h: &Array,
        embed_tokens: &Embedding,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let logits = match &self.projection {
            Some(projection) => projection.forward(h)?,
            None => embed_tokens.as_linear(h)?,
        };
        if !matches!(self.scale, LogitScale::None) {
            sink.tap("lm_head", &logits);
        }
        let logits = self.scaled(&logits)?;
        sink.tap("logits", &logits);
        Ok(logits)
    }

    /// The matrix, where logits are nothing but a product with it.
    pub(super) fn product(&self, embed_tokens: &Embedding) -> Option<HeadWeight> {
        match (&self.scale, &self.projection) {
            (LogitScale::None, Some(projection)) => projection.matrix(),
            (LogitScale::None, None) => Some(embed_tokens.matrix()),
            _ => None,
        }
    }

    fn scaled(&self, logits: &Array) -> Result<Array, EngineError> {
        let number = |value| ops::scalar(value, logits.dtype());
        match self.scale {
            LogitScale::None => Ok(logits.clone()),
            LogitScale::Divide(by) => ops::divide(logits, &number(by)?),
            LogitScale::Multiply(by) => ops::multiply(logits, &number(by)?),
            LogitScale::Softcap(cap) => {
                let cap = number(fault::softcap(self.fault, cap))?;
                ops::multiply(&ops::tanh(&ops::divide(logits, &cap)?)?, &cap)
            }
        }
    }
}

/// Forgets the tensors that `sanitize` throws away.
pub(super) fn drop_unread(spec: &Spec, weights: &mut Weights) {
    if spec.drops.contains(&Drop::HEAD) && weights.has("lm_head.weight") {
        tracing::warn!("lm_head.weight is dropped: the embedding is tied, or by mlx-lm's default");
    }
    weights.discard(|name| spec.drops.iter().any(|drop| drop.covers(name)));
}
