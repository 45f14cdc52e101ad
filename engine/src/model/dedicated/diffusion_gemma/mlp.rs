//! The dense feed-forward block, and the soft embeddings' way into the canvas.

use mlx_rs::Array;

use super::config::DiffusionGemmaConfig;
use crate::error::EngineError;
use crate::nn::{Linear, RmsNorm};
use crate::ops;
use crate::taps::TapSink;
use crate::weights::Weights;

/// `geglu`: `gelu_approx(gate) * x`.
pub(super) fn geglu(gate: &Array, x: &Array) -> Result<Array, EngineError> {
    ops::multiply(&ops::gelu_approx(gate)?, x)
}

/// `MLP`: `down(geglu(gate(x), up(x)))`.
pub(super) struct Mlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Mlp {
    pub(super) fn load(
        config: &DiffusionGemmaConfig,
        weights: &mut Weights,
        path: &str,
    ) -> Result<Self, EngineError> {
        let (hidden, inner) = (config.dims.hidden_size, config.dims.intermediate_size);
        let mut linear = |name, shape| weights.linear(&format!("{path}.{name}"), shape, false);
        Ok(Self {
            gate: linear("gate_proj", [inner, hidden])?,
            up: linear("up_proj", [inner, hidden])?,
            down: linear("down_proj", [hidden, inner])?,
        })
    }

    /// x `[1, n, hidden]` to the same; taps stand under `name`.
    pub(super) fn forward(
        &self,
        x: &Array,
        name: &str,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let (gate, up) = (self.gate.forward(x)?, self.up.forward(x)?);
        sink.tap(&format!("{name}.gate"), &gate);
        sink.tap(&format!("{name}.up"), &up);
        let down = self.down.forward(&geglu(&gate, &up)?)?;
        sink.tap(&format!("{name}.down"), &down);
        Ok(down)
    }
}

/// `SelfConditioning`: what the step before thought of each position, added to the canvas.
pub(super) struct SelfConditioning {
    pre_norm: RmsNorm,
    mlp: Mlp,
    eps: f32,
}

impl SelfConditioning {
    pub(super) fn load(
        config: &DiffusionGemmaConfig,
        weights: &mut Weights,
        path: &str,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        Ok(Self {
            pre_norm: weights.norm(&format!("{path}.pre_norm"), dims.hidden_size, dims.eps)?,
            mlp: Mlp::load(config, weights, path)?,
            eps: dims.eps as f32,
        })
    }

    /// Embedded canvas and soft embeddings, `[1, n, hidden]` each, to the same.
    pub(super) fn forward(
        &self,
        embedded: &Array,
        soft: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let normed = self.pre_norm.forward(soft)?;
        sink.tap("self_conditioning.pre_norm", &normed);
        let signal = self.mlp.forward(&normed, "self_conditioning", sink)?;
        let out = ops::rms_norm(&ops::add(embedded, &signal)?, None, self.eps)?;
        sink.tap("self_conditioning.post_norm", &out);
        Ok(out)
    }
}
