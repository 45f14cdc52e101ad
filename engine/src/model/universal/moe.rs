//! Routers and experts.

use mlx_rs::Array;

use crate::error::EngineError;
use crate::fault::Fault;
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::Weights;

/// A router and its experts; there is none yet.
#[derive(Debug, Clone)]
pub(crate) enum MoeSpec {}

/// The block of a [`MoeSpec`].
pub(super) enum Moe {}

impl Moe {
    /// The block at a place.
    pub(super) fn load(
        _weights: &mut Weights,
        _place: &Place,
        _hidden: usize,
        spec: &MoeSpec,
        _fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        match *spec {}
    }

    /// x `[batch, n, hidden]` to the same.
    pub(super) fn forward(&self, _x: &Array, _sink: &mut TapSink) -> Result<Array, EngineError> {
        match *self {}
    }
}
