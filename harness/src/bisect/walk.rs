//! One run of a script along a path: what is asked of a worker, and the file it writes.
//!
//! The file is safetensors with `logits.<call>`, `[n, vocab]`, of every call, and
//! `tap.<call>.<order>.<name>` of every intermediate that was watched: calls and orders counted from 0,
//! names and shapes those of the engine's taps.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::Arc,
};

use mlx_parity_tensor::{
    TensorView,
    safetensors::{SafetensorsError, SafetensorsFile},
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::composition::Spelled;

/// What a worker is asked to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walk {
    /// What computes.
    pub engine: EnginePath,
    /// All ids.
    pub ids: Vec<u32>,
    /// How many of them each model call takes.
    pub calls: Vec<usize>,
    /// What is watched; nothing without.
    pub watch: Option<Watch>,
    /// Caches to write.
    pub caches: Option<CachesBefore>,
    /// The safetensors file to write.
    pub out: PathBuf,
}

/// A model and how it computes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnginePath {
    /// The model's folder.
    pub model: PathBuf,
    /// The composition.
    pub composition: Spelled,
    /// A deliberate fault (debug builds).
    pub fault: Option<String>,
    /// What it computes on, where that is not MLX's default.
    pub processor: Option<Processor>,
}

/// A kind of processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processor {
    /// The CPU.
    Cpu,
    /// The GPU.
    Gpu,
}

/// Intermediates to watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The first call and the last that are watched.
    pub calls: [usize; 2],
    /// Their names; all without.
    pub names: Option<BTreeSet<String>>,
}

/// The caches as they are before a call, in a file of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachesBefore {
    /// The call.
    pub call: usize,
    /// The safetensors file to write, as `Decoder::save_caches` writes it.
    pub out: PathBuf,
}

/// An intermediate of one call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Point {
    /// The model call, counted from 0.
    pub call: usize,
    /// The name in the engine's taps.
    pub name: String,
}

impl Watch {
    /// All of some calls.
    pub fn all(calls: [usize; 2]) -> Self {
        Self { calls, names: None }
    }

    /// Those names of one call.
    pub fn some<'a>(call: usize, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().map(str::to_owned).collect();
        Self { calls: [call, call], names: Some(names) }
    }

    /// Whether a point is watched.
    pub fn wants(&self, point: &Point) -> bool {
        (self.calls[0]..=self.calls[1]).contains(&point.call)
            && self.names.as_ref().is_none_or(|names| names.contains(&point.name))
    }
}

impl Point {
    /// The layer it is in, if in one: `layers.3.mlp.up`.
    pub fn layer(&self) -> Option<usize> {
        self.name.strip_prefix("layers.")?.split('.').next()?.parse().ok()
    }

    /// Whether all that comes behind reads it: the residual stream between layers, and the logits.
    pub fn is_stream(&self) -> bool {
        match self.layer() {
            Some(layer) => self.name == format!("layers.{layer}.out"),
            None => self.name == "embed" || self.name == "logits",
        }
    }

    /// The point and its order of a tensor's name in a file; the order is optional there.
    pub(super) fn parse(tensor: &str) -> Option<(Option<usize>, Self)> {
        let (call, rest) = tensor.strip_prefix("tap.")?.split_once('.')?;
        let call = call.parse().ok()?;
        if let Some((order, name)) = rest.split_once('.')
            && let Ok(order) = order.parse()
        {
            return Some((Some(order), Self { call, name: name.to_owned() }));
        }
        Some((None, Self { call, name: rest.to_owned() }))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {})", self.name, self.call)
    }
}

/// What a run gave: logits of every call, and what was watched, in the order of the model.
#[derive(Debug)]
pub struct Walked {
    file: Arc<SafetensorsFile>,
    logits: Vec<String>,
    points: Vec<Point>,
    tensors: BTreeMap<Point, String>,
    _scratch: Option<TempDir>,
}

impl Walked {
    /// Reads a worker's file, which goes when this does.
    pub(super) fn of_worker(
        file: SafetensorsFile,
        calls: usize,
        scratch: TempDir,
    ) -> Result<Self, SafetensorsError> {
        let logits: Vec<_> = (0..calls).map(|call| format!("logits.{call}")).collect();
        for name in &logits {
            file.entry(name)?;
        }
        Ok(Self { _scratch: Some(scratch), ..Self::of(Arc::new(file), logits, |_| true) })
    }

    /// What a file holds of the points that are wanted; `logits` are its tensors' names, call by call.
    pub(super) fn of(
        file: Arc<SafetensorsFile>,
        logits: Vec<String>,
        wanted: impl Fn(&Point) -> bool,
    ) -> Self {
        let parsed = |name: &str| Point::parse(name).map(|(order, p)| (p, order, name.to_owned()));
        let mut found: Vec<_> = file.names().filter_map(parsed).collect();
        found.retain(|(point, ..)| wanted(point));
        found.sort_by_key(|(point, order, _)| (point.call, *order));
        let points = found.iter().map(|(point, ..)| point.clone()).collect();
        let tensors = found.into_iter().map(|(point, _, name)| (point, name)).collect();
        Self { file, logits, points, tensors, _scratch: None }
    }

    /// What was watched, in the order of the model where the file says it.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Whether a point was watched and is there.
    pub fn has(&self, point: &Point) -> bool {
        self.tensors.contains_key(point)
    }

    /// An intermediate, if it was watched and there is one.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn view(&self, point: &Point) -> Result<Option<TensorView<'_>>, SafetensorsError> {
        self.tensors.get(point).map(|name| self.file.view(name)).transpose()
    }

    /// The logits of a call, `[n, vocab]`.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn logits(&self, call: usize) -> Result<TensorView<'_>, SafetensorsError> {
        let view = self.file.view(&self.logits[call])?;
        // A dump has the batch axis of the model's own output.
        match view.shape() {
            [1, rest @ ..] if rest.len() == 2 => {
                Ok(TensorView::new(view.dtype(), rest, view.bytes()).unwrap_or(view))
            }
            _ => Ok(view),
        }
    }

    /// Number of calls.
    pub fn calls(&self) -> usize {
        self.logits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_names_are_points() {
        let point = |call, name: &str| Point { call, name: name.to_owned() };
        let parsed = Point::parse("tap.2.14.layers.10.mlp.up");
        assert_eq!(parsed, Some((Some(14), point(2, "layers.10.mlp.up"))));
        assert_eq!(Point::parse("tap.0.embed"), Some((None, point(0, "embed"))));
        assert_eq!(Point::parse("tap.x.embed"), None);
        assert_eq!(Point::parse("logits.0"), None);
        assert_eq!(point(2, "layers.10.mlp.up").layer(), Some(10));
        assert!(point(0, "layers.3.out").is_stream() && point(0, "embed").is_stream());
        assert!(!point(0, "layers.3.mlp.out").is_stream() && !point(0, "norm").is_stream());
    }
}
