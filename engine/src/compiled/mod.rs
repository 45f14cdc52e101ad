//! Decode steps whose parts without state are compiled by MLX.
//!
//! A network marks those parts as segments ([`TapSink::segment`](crate::taps::TapSink::segment)): from a
//! layer's input to its rotated queries, keys and values; from what attention mixed to the layer's
//! output; the head. Cache updates and attention stand between them and are never traced, so that a
//! trace knows neither how long a cache is nor where its next row goes: a cache may grow, be trimmed and
//! rotate without a new trace. Where a step stands is an input too, an array.
//!
//! A trace is made on the first step, and again where the extents or the dtype of its inputs are new,
//! which another batch size brings about.

mod mode;
mod trace;

pub use mode::DecodeMode;
pub use trace::{custom_kernel_allowed, is_tracing};

use std::collections::HashMap;

use mlx_rs::Array;

use self::trace::Trace;
use crate::error::EngineError;
use crate::fault;

/// A segment of a model call: the layer it is in, if in one, and its name.
pub(crate) type SegmentName = (Option<usize>, &'static str);

/// The compiled segments of one decoder.
#[derive(Default)]
pub(crate) struct Segments {
    mode: DecodeMode,
    /// Whether the model call at hand is one that runs compiled.
    on: bool,
    traces: HashMap<SegmentName, Trace>,
    /// Traces made so far.
    made: usize,
}

impl Segments {
    /// How later steps run. Traces of another mode are forgotten.
    pub(crate) fn set_mode(&mut self, mode: DecodeMode) {
        if mode != self.mode {
            self.traces.clear();
            self.mode = mode;
        }
    }

    pub(crate) fn mode(&self) -> DecodeMode {
        self.mode
    }

    /// Whether segments of the call at hand run compiled.
    pub(crate) fn on(&self) -> bool {
        self.on
    }

    /// Says whether the segments of the next calls run compiled.
    pub(crate) fn switch(&mut self, on: bool) {
        self.on = on && self.mode != DecodeMode::Eager;
    }

    /// Traces made so far.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// Runs `body` on the inputs through its trace, which is made where there is none that fits. `body`
    /// must be a pure function of the inputs' values; what else it reads has to be the same in every
    /// step.
    pub(crate) fn run<const I: usize, const O: usize>(
        &mut self,
        name: SegmentName,
        inputs: [&Array; I],
        mut body: impl FnMut([&Array; I]) -> Result<[Array; O], EngineError>,
    ) -> Result<[Array; O], EngineError> {
        fault::point(|| format!("segment {}", shown(name)))?;
        let trace = self.traces.entry(name).or_insert_with(Trace::new);
        let before = trace.made();
        let outputs = trace.call(self.mode, &inputs.map(Clone::clone), &mut |inputs| {
            let outputs = body(std::array::from_fn(|i| &inputs[i]))?;
            fault::point(|| format!("trace {}", shown(name)))?;
            Ok(outputs.to_vec())
        });
        self.made += trace.made() - before;
        let found = outputs?;
        found.try_into().map_err(|found: Vec<Array>| {
            let found = format!("{} arrays", found.len());
            crate::ops::refused("compile", &found, &format!("{O} of {}", shown(name)))
        })
    }
}

/// The name as taps have it.
fn shown((layer, name): SegmentName) -> String {
    match layer {
        Some(layer) => format!("layers.{layer}.{name}"),
        None => name.to_owned(),
    }
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segments")
            .field("mode", &self.mode)
            .field("on", &self.on)
            .field("segments", &self.traces.len())
            .field("made", &self.made)
            .finish()
    }
}
