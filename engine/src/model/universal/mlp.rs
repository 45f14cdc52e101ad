//! Feed-forward networks.

use mlx_rs::Array;

use super::spec::{Activation, MlpInputs, MlpSpec};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::kernels::sites;
use crate::nn::Linear;
use crate::ops::{self, SliceAxis};
use crate::place::Place;
use crate::taps::TapSink;
use crate::train;
use crate::weights::Weights;

/// The network of a [`MlpSpec`].
pub(in crate::model) struct Mlp {
    place: Place,
    spec: MlpSpec,
    /// The projections in, in the order of [`MlpInputs`].
    inputs: Vec<Linear>,
    down: Linear,
    fault: Option<Fault>,
}

impl Mlp {
    /// The network at a place, on a stream `hidden` wide.
    pub(in crate::model) fn load(
        weights: &mut Weights,
        place: &Place,
        hidden: usize,
        spec: &MlpSpec,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let mut linear =
            |name: &str, shape| weights.linear(place.join(name).path(), shape, spec.bias);
        let inputs = match spec.inputs {
            MlpInputs::Gated { gate, up } => {
                vec![linear(gate, [spec.width, hidden])?, linear(up, [spec.width, hidden])?]
            }
            MlpInputs::Fused(both) => vec![linear(both, [2 * spec.width, hidden])?],
            MlpInputs::Plain(up) => vec![linear(up, [spec.width, hidden])?],
        };
        let down = linear(spec.down, [hidden, spec.width])?;
        Ok(Self { place: place.clone(), spec: *spec, inputs, down, fault })
    }

    /// x `[.., hidden]` to the same.
    pub(in crate::model) fn forward(
        &self,
        x: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let inner = match self.fused_gate(x)? {
            Some(inner) => inner,
            None => self.composed_gate(x, sink)?,
        };
        sink.tap_in(&self.place, "act", &inner);
        let out = fault::down(self.fault, self.down.forward(&inner)?)?;
        sink.tap_module(&self.place, self.spec.down, &out);
        Ok(out)
    }

    /// The projections of the whole block where it is `silu(gate) * up`, and `down`.
    pub(super) fn swiglu(&self) -> Option<[&Linear; 3]> {
        let silu = self.spec.activation == Activation::Silu;
        match self.spec.inputs {
            MlpInputs::Gated { .. } if silu => Some([&self.inputs[0], &self.inputs[1], &self.down]),
            _ => None,
        }
    }

    /// What enters the last projection, by a kernel.
    fn fused_gate(&self, x: &Array) -> Result<Option<Array>, EngineError> {
        self.swiglu().map_or(Ok(None), |[gate, up, _]| sites::swiglu(x, gate, up))
    }

    /// What enters the last projection, op by op.
    fn composed_gate(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let first = self.inputs[0].forward(x)?;
        match self.spec.inputs {
            MlpInputs::Gated { gate, up } => {
                let second = self.inputs[1].forward(x)?;
                sink.tap_module(&self.place, gate, &first);
                sink.tap_module(&self.place, up, &second);
                self.gated(&first, &second)
            }
            MlpInputs::Fused(both) => {
                sink.tap_module(&self.place, both, &first);
                let [gate, up] = halves(&first)?;
                self.gated(&gate, &up)
            }
            MlpInputs::Plain(up) => {
                sink.tap_module(&self.place, up, &first);
                self.spec.activation.apply(&first)
            }
        }
    }

    fn gated(&self, gate: &Array, up: &Array) -> Result<Array, EngineError> {
        let [gate, up] = fault::gate_and_up(self.fault, [gate, up]);
        if self.spec.activation == Activation::GeluApprox {
            if let Some(inner) = train::geglu(gate, up)? {
                return Ok(inner);
            }
            if let Some(inner) = sites::geglu(gate, up)? {
                return Ok(inner);
            }
        }
        ops::multiply(&self.spec.activation.apply(gate)?, up)
    }
}

/// The two halves of the last axis, as views.
fn halves(x: &Array) -> Result<[Array; 2], EngineError> {
    let width = x.dim(-1);
    let part = |start, stop| ops::slice_last(x, SliceAxis::range(start, stop));
    Ok([part(0, width / 2)?, part(width / 2, width)?])
}

impl Activation {
    /// The function on any shape, in x's dtype.
    pub(super) fn apply(self, x: &Array) -> Result<Array, EngineError> {
        match self {
            Self::Silu => ops::silu(x),
            Self::Gelu => ops::gelu(x),
            Self::GeluApprox => ops::gelu_approx(x),
            Self::Relu2 => ops::relu2(x),
        }
    }
}
