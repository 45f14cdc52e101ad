//! Named intermediates of a model call.
//!
//! Names follow the modules of the reference: `embed`, `layers.{i}.input_layernorm`,
//! `layers.{i}.self_attn.{q,k,v}` (projections), `.{q_norm,k_norm}` where the architecture has them,
//! `.{q_rope,k_rope}`, `.sdpa`, `.o`, the other norms of the layer, `layers.{i}.mlp.{gate,up,act,down}`,
//! `layers.{i}.out`, `norm`, `logits`. Values keep the batch axis and the model's own dtype.

use std::collections::BTreeSet;

use mlx_parity_tensor::HostTensor;
use mlx_rs::Array;

use crate::array::to_host;
use crate::compiled::Segments;
use crate::error::EngineError;
use crate::place::Place;

/// Which intermediates to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Taps {
    /// None.
    #[default]
    Off,
    /// Every one.
    All,
    /// Those of exactly these names.
    Named(BTreeSet<String>),
}

impl Taps {
    fn wants(&self, name: &str) -> bool {
        match self {
            Self::Off => false,
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }
}

/// What rides along a model call that is built: it collects handles, each of which keeps its array from
/// being overwritten, and runs the parts that may be compiled.
#[derive(Debug, Default)]
pub(crate) struct TapSink {
    pub(crate) taps: Taps,
    pub(crate) segments: Segments,
    layer: Option<usize>,
    kept: Vec<(String, Array)>,
}

impl TapSink {
    /// Later names are of this layer, or of the whole model.
    pub(crate) fn enter(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    /// Runs a part of the call that is a pure function of its inputs: as it stands, or, in a decode step
    /// that is compiled, through its trace, without taps. It has its name alone in its layer, and
    /// whatever else it reads is the same in every step of a decoder.
    pub(crate) fn segment<const I: usize, const O: usize>(
        &mut self,
        name: &'static str,
        inputs: [&Array; I],
        mut body: impl FnMut([&Array; I], &mut Self) -> Result<[Array; O], EngineError>,
    ) -> Result<[Array; O], EngineError> {
        if !self.segments.on() {
            return body(inputs, self);
        }
        self.segments.run((self.layer, name), inputs, |inputs| body(inputs, &mut Self::default()))
    }

    /// [`TapSink::segment`] where `pure` says that it is one; else the part always runs as it stands.
    pub(crate) fn segment_where<const I: usize, const O: usize>(
        &mut self,
        pure: bool,
        name: &'static str,
        inputs: [&Array; I],
        mut body: impl FnMut([&Array; I], &mut Self) -> Result<[Array; O], EngineError>,
    ) -> Result<[Array; O], EngineError> {
        if pure { self.segment(name, inputs, body) } else { body(inputs, self) }
    }

    /// Keeps `value` if its name is wanted.
    pub(crate) fn tap(&mut self, name: &str, value: &Array) {
        if self.taps == Taps::Off {
            return;
        }
        let name = match self.layer {
            Some(layer) => format!("layers.{layer}.{name}"),
            None => name.to_owned(),
        };
        if self.taps.wants(&name) {
            self.kept.push((name, value.clone()));
        }
    }

    /// Keeps the output of a module within `parent`.
    pub(crate) fn tap_module(&mut self, parent: &Place, module: &str, value: &Array) {
        if self.taps != Taps::Off {
            self.tap(parent.join(module).own_tap(), value);
        }
    }

    /// Keeps a value within `parent` that no module of its own gives.
    pub(crate) fn tap_in(&mut self, parent: &Place, name: &str, value: &Array) {
        if self.taps != Taps::Off {
            self.tap(&parent.tap(name), value);
        }
    }

    /// Evaluates and copies out what was kept, in the order of the model call.
    pub(crate) fn drain(&mut self) -> Result<Vec<(String, HostTensor)>, EngineError> {
        self.kept.drain(..).map(|(name, array)| Ok((name, to_host(&array)?))).collect()
    }
}
