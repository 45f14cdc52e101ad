//! The caches of one batch of sequences in a safetensors file.
//!
//! Tensors `layers.{i}.keys` and `layers.{i}.values`, whole buffers as `save_prompt_cache` of
//! `mlx_lm/models/cache.py` keeps them; metadata `format`, `model` and `layers.{i}`, a layer's kind
//! and counters in JSON. A cache that never saw a position has no tensors.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::path::Path;

use mlx_parity_tensor::safetensors::{self, SafetensorsFile};
use mlx_parity_tensor::{Dtype, HostTensor};
use serde::{Deserialize, Serialize};

use super::rotating::Counters;
use super::{Buffers, KvCache, PlainCache, RotatingCache};
use crate::array::{from_view, to_host};
use crate::error::EngineError;

const FORMAT: &str = "mlx-parity caches 1";

/// What the caches of a model look like.
pub(crate) struct Form<'a> {
    /// Identifies the model.
    pub(crate) model: &'a str,
    pub(crate) dtype: Dtype,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
}

/// A layer's kind and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Layer {
    Plain(i32),
    Rotating(Counters),
}

impl Layer {
    fn of(cache: &KvCache) -> Self {
        match cache {
            KvCache::Plain(cache) => Self::Plain(cache.offset()),
            KvCache::Rotating(cache) => Self::Rotating(cache.counters()),
        }
    }

    fn offset(self) -> i32 {
        match self {
            Self::Plain(offset) => offset,
            Self::Rotating(counters) => counters.offset,
        }
    }

    /// The same layer before its first position.
    fn fresh(self) -> Self {
        match self {
            Self::Plain(_) => Self::Plain(0),
            Self::Rotating(counters) => {
                Self::Rotating(Counters { offset: 0, index: 0, ..counters })
            }
        }
    }

    /// Whether buffers of this many positions can stand at these counters.
    fn fits(self, capacity: i32) -> bool {
        match self {
            Self::Plain(offset) => (0..=capacity).contains(&offset),
            Self::Rotating(Counters { offset, index, max_size, .. }) if offset < max_size => {
                (0..=capacity).contains(&offset) && index == offset
            }
            Self::Rotating(Counters { index, max_size, .. }) => {
                capacity >= max_size && (1..=capacity).contains(&index)
            }
        }
    }

    fn cache(self, buffers: Option<Buffers>) -> KvCache {
        match self {
            Self::Plain(offset) => KvCache::Plain(PlainCache::restored(buffers, offset)),
            Self::Rotating(counters) => {
                KvCache::Rotating(RotatingCache::restored(buffers, counters))
            }
        }
    }
}

/// Writes the caches.
pub(crate) fn save(path: &Path, caches: &[KvCache], form: &Form) -> Result<(), EngineError> {
    let mut metadata = BTreeMap::from([
        ("format".to_owned(), FORMAT.to_owned()),
        ("model".to_owned(), form.model.to_owned()),
    ]);
    let mut tensors: Vec<(String, HostTensor)> = Vec::new();
    for (i, cache) in caches.iter().enumerate() {
        let layer = serde_json::json!(Layer::of(cache)).to_string();
        metadata.insert(format!("layers.{i}"), layer);
        if let Some(Buffers { keys, values }) = cache.buffers() {
            tensors.push((format!("layers.{i}.keys"), to_host(keys)?));
            tensors.push((format!("layers.{i}.values"), to_host(values)?));
        }
    }
    let tensors = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
    Ok(safetensors::write(path, tensors, &metadata)?)
}

/// Reads caches that fit in the place of `empty` ones.
pub(crate) fn load(
    path: &Path,
    empty: &[KvCache],
    form: &Form,
) -> Result<Vec<KvCache>, EngineError> {
    let saved = Saved { path, file: SafetensorsFile::open(path)? };
    saved.same("format", saved.about("format")?, FORMAT)?;
    saved.same("the model", saved.about("model")?, form.model)?;
    let layers = saved.file.metadata().len() - 2;
    saved.same("the number of layers", layers, empty.len())?;
    let caches: Vec<KvCache> = empty
        .iter()
        .enumerate()
        .map(|(i, empty)| saved.layer(i, empty, form))
        .collect::<Result<_, _>>()?;
    let held = caches.iter().filter(|cache| cache.batch().is_some()).count();
    saved.same("the number of tensors", saved.file.names().len(), 2 * held)?;
    for (i, cache) in caches.iter().enumerate() {
        saved.same(format!("the offset of layer {i}"), cache.offset(), caches[0].offset())?;
        let (found, wanted) = (cache.batch(), caches[0].batch());
        saved.same(format!("the batch of layer {i}"), Shown(found), Shown(wanted))?;
    }
    Ok(caches)
}

/// A file of saved caches while it is read.
struct Saved<'a> {
    path: &'a Path,
    file: SafetensorsFile,
}

impl Saved<'_> {
    fn layer(&self, i: usize, empty: &KvCache, form: &Form) -> Result<KvCache, EngineError> {
        let name = format!("layers.{i}");
        let text = self.about(&name)?;
        let layer: Layer = serde_json::from_str(text)
            .map_err(|error| self.unfit(&name, text, format!("a kind and counters ({error})")))?;
        self.same(format!("{name}, empty,"), Shown(layer.fresh()), Shown(Layer::of(empty)))?;
        if layer.offset() == 0 && !self.file.contains(&format!("{name}.keys")) {
            return Ok(layer.fresh().cache(None));
        }
        let keys = self.buffer(&format!("{name}.keys"), form)?;
        let values = self.buffer(&format!("{name}.values"), form)?;
        let what = format!("the shape of {name}.values");
        self.same(what, Shown(values.shape()), Shown(keys.shape()))?;
        let buffers = Buffers { keys, values };
        if !layer.fits(buffers.capacity()) {
            let wanted = format!("counters that buffers of {} can have", buffers.capacity());
            return Err(self.unfit(&name, text, wanted));
        }
        Ok(layer.cache(Some(buffers)))
    }

    fn buffer(&self, name: &str, form: &Form) -> Result<mlx_rs::Array, EngineError> {
        let view = self.file.view(name)?;
        self.same(format!("the dtype of {name}"), view.dtype().name(), form.dtype.name())?;
        match *view.shape() {
            [batch, heads, _, dim]
                if batch > 0 && (heads, dim) == (form.kv_heads, form.head_dim) => {}
            _ => {
                let wanted = format!("[batch, {}, positions, {}]", form.kv_heads, form.head_dim);
                let found = format!("{:?}", view.shape());
                return Err(self.unfit(format!("the shape of {name}"), found, wanted));
            }
        }
        from_view(&view)
    }

    /// A line of the metadata.
    fn about(&self, key: &str) -> Result<&str, EngineError> {
        let found = self.file.metadata().get(key).map(String::as_str);
        found.ok_or_else(|| self.unfit(format!("metadata `{key}`"), "missing", "given"))
    }

    fn same<T: PartialEq + Display>(
        &self,
        what: impl Display,
        found: T,
        wanted: T,
    ) -> Result<(), EngineError> {
        if found == wanted { Ok(()) } else { Err(self.unfit(what, found, wanted)) }
    }

    fn unfit(&self, what: impl Display, found: impl Display, wanted: impl Display) -> EngineError {
        EngineError::SavedCaches {
            file: self.path.to_owned(),
            what: what.to_string(),
            found: found.to_string(),
            wanted: wanted.to_string(),
        }
    }
}

/// A value shown as its `Debug` form.
#[derive(PartialEq)]
struct Shown<T>(T);

impl<T: Debug> Display for Shown<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
