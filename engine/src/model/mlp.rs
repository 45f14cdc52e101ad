//! The gated feed-forward block.

use mlx_rs::Array;

use crate::config::Dims;
use crate::error::EngineError;
use crate::nn::Linear;
use crate::ops;
use crate::taps::TapSink;
use crate::weights::Weights;

/// `down(activation(gate(x)) * up(x))`.
pub(super) struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    activation: fn(&Array) -> Result<Array, EngineError>,
}

impl Mlp {
    /// The block at a module path.
    pub(super) fn load(
        weights: &mut Weights,
        path: &str,
        dims: &Dims,
        bias: bool,
        activation: fn(&Array) -> Result<Array, EngineError>,
    ) -> Result<Self, EngineError> {
        let (hidden, inner) = (dims.hidden_size, dims.intermediate_size);
        Ok(Self {
            gate_proj: weights.linear(&format!("{path}.gate_proj"), [inner, hidden], bias)?,
            up_proj: weights.linear(&format!("{path}.up_proj"), [inner, hidden], bias)?,
            down_proj: weights.linear(&format!("{path}.down_proj"), [hidden, inner], bias)?,
            activation,
        })
    }

    /// x `[1, n, hidden]` to the same.
    pub(super) fn forward(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let gate = self.gate_proj.forward(x)?;
        let up = self.up_proj.forward(x)?;
        sink.tap("mlp.gate", &gate);
        sink.tap("mlp.up", &up);
        let act = ops::multiply(&(self.activation)(&gate)?, &up)?;
        sink.tap("mlp.act", &act);
        let down = self.down_proj.forward(&act)?;
        sink.tap("mlp.down", &down);
        Ok(down)
    }
}
