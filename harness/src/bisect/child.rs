//! The worker's side: runs a script and writes what it gives.

use std::collections::{BTreeMap, BTreeSet};

use mlx_parity_engine::{self as engine, EngineError, Fault, LoadOptions, Model, Taps};
use mlx_parity_tensor::{HostTensor, safetensors};

use super::walk::{EnginePath, Processor, Walk, Watch};
use crate::composition;

/// Runs walks, and keeps the model of the last one.
#[derive(Default)]
pub struct Walker {
    loaded: Option<(EnginePath, Model)>,
}

impl Walker {
    /// Runs one and writes its file.
    ///
    /// # Errors
    /// What the engine or the system says.
    pub fn walk(&mut self, walk: &Walk) -> Result<(), String> {
        let model = self.model(&walk.engine).map_err(|error| error.to_string())?;
        let tensors = run(model, walk).map_err(|error| error.to_string())?;
        let tensors = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
        safetensors::write(&walk.out, tensors, &BTreeMap::new()).map_err(|error| error.to_string())
    }

    fn model(&mut self, path: &EnginePath) -> Result<&Model, EngineError> {
        let loaded = match self.loaded.take().filter(|(loaded, _)| loaded == path) {
            Some(loaded) => loaded,
            None => (path.clone(), load(path)?),
        };
        Ok(&self.loaded.insert(loaded).1)
    }
}

fn load(path: &EnginePath) -> Result<Model, EngineError> {
    if let Some(processor) = path.processor {
        engine::compute_on(match processor {
            Processor::Cpu => engine::Processor::Cpu,
            Processor::Gpu => engine::Processor::Gpu,
        })?;
    }
    let fault = path.fault.as_deref().map(Fault::parse).transpose()?;
    Model::load(&path.model, &LoadOptions { fault, ..LoadOptions::default() })
}

fn run(model: &Model, walk: &Walk) -> Result<Vec<(String, HostTensor)>, EngineError> {
    let mut decoder = composition::decoder(model, &walk.engine.composition)?;
    let (mut tensors, mut rest) = (Vec::new(), walk.ids.as_slice());
    for (call, &count) in walk.calls.iter().enumerate() {
        if let Some(caches) = walk.caches.as_ref().filter(|caches| caches.call == call) {
            decoder.save_caches(&caches.out)?;
        }
        decoder.set_taps(walk.watch.as_ref().map_or(Taps::Off, |watch| taps(watch, call)));
        let (ids, later) = rest.split_at(count);
        rest = later;
        tensors.push((format!("logits.{call}"), decoder.verify(ids)?));
        tensors.extend(named(call, decoder.take_taps()));
    }
    Ok(tensors)
}

fn taps(watch: &Watch, call: usize) -> Taps {
    if !(watch.calls[0]..=watch.calls[1]).contains(&call) {
        return Taps::Off;
    }
    watch.names.clone().map_or(Taps::All, Taps::Named)
}

/// A sequence that is run again within a call, under rotations that change with its length, gives a name
/// twice: the last one is the call's.
fn named(call: usize, taps: Vec<(String, HostTensor)>) -> Vec<(String, HostTensor)> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<_> = taps.into_iter().rev().filter(|(n, _)| seen.insert(n.clone())).collect();
    kept.reverse();
    let name = |(order, (name, tensor))| (format!("tap.{call}.{order}.{name}"), tensor);
    kept.into_iter().enumerate().map(name).collect()
}
