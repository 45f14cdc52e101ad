//! The caches of one batch of sequences in a safetensors file.
//!
//! Tensors `layers.{i}.keys` and `layers.{i}.values`, whole buffers as `save_prompt_cache` of
//! `mlx_lm/models/cache.py` keeps them, or `layers.{i}.conv` and `layers.{i}.memory`; metadata `format`, `model` and `layers.{i}`, a layer's kind
//! and counters in JSON. A cache that never saw a position has no tensors.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::path::Path;

use mlx_parity_tensor::safetensors::{self, SafetensorsFile};
use mlx_parity_tensor::{Dtype, HostTensor};
use mlx_rs::Array;
use serde::{Deserialize, Serialize};

use super::rotating::Counters;
use super::{
    Buffers, KvCache, PlainCache, RecurrentCache, RecurrentForm, RecurrentState, RotatingCache,
};
use crate::array::{from_view, to_host};
use crate::error::EngineError;

const FORMAT: &str = "mlx-parity caches 1";

/// Stands for any extent in a wanted shape.
const POSITIONS: i32 = -1;

/// What the caches of a model look like.
pub(crate) struct Form<'a> {
    /// Identifies the model.
    pub(crate) model: &'a str,
    pub(crate) dtype: Dtype,
    /// Heads and head width of each cache's keys; unused where a cache keeps something else.
    pub(crate) kv_shapes: Vec<[usize; 2]>,
}

/// A layer's kind and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Layer {
    Plain(i32),
    Rotating(Counters),
    Recurrent(Recurrent),
}

/// Where a recurrent cache stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recurrent {
    offset: i32,
    form: RecurrentForm,
}

impl Layer {
    fn of(cache: &KvCache) -> Self {
        match cache {
            KvCache::Plain(cache) => Self::Plain(cache.offset()),
            KvCache::Rotating(cache) => Self::Rotating(cache.counters()),
            KvCache::Recurrent(cache) => {
                Self::Recurrent(Recurrent { offset: cache.offset(), form: cache.form() })
            }
        }
    }

    fn offset(self) -> i32 {
        match self {
            Self::Plain(offset) => offset,
            Self::Rotating(counters) => counters.offset,
            Self::Recurrent(recurrent) => recurrent.offset,
        }
    }

    /// The same layer before its first position.
    fn fresh(self) -> Self {
        match self {
            Self::Plain(_) => Self::Plain(0),
            Self::Rotating(counters) => {
                Self::Rotating(Counters { offset: 0, index: 0, ..counters })
            }
            Self::Recurrent(recurrent) => Self::Recurrent(Recurrent { offset: 0, ..recurrent }),
        }
    }

    /// Whether the layer can have this as its first array.
    fn fits(self, first: &Array) -> bool {
        match self {
            Self::Plain(offset) => (0..=first.dim(2)).contains(&offset),
            Self::Rotating(Counters { offset, index, max_size, .. }) if offset < max_size => {
                (0..=first.dim(2)).contains(&offset) && index == offset
            }
            Self::Rotating(Counters { index, max_size, .. }) => {
                // One row is missing where a rollback took all of a write back.
                let whole = first.dim(2) >= max_size && (1..=first.dim(2)).contains(&index);
                whole || (first.dim(2) == max_size - 1 && index == first.dim(2))
            }
            Self::Recurrent(recurrent) => recurrent.offset > 0,
        }
    }

    fn cache(self, arrays: Option<[Array; 2]>) -> KvCache {
        let buffers = |[keys, values]: [Array; 2]| Buffers { keys, values };
        match (self, arrays) {
            (Self::Plain(offset), arrays) => {
                KvCache::Plain(PlainCache::restored(arrays.map(buffers), offset))
            }
            (Self::Rotating(counters), arrays) => {
                KvCache::Rotating(RotatingCache::restored(arrays.map(buffers), counters))
            }
            (Self::Recurrent(Recurrent { form, .. }), None) => {
                KvCache::Recurrent(RecurrentCache::new(form))
            }
            (Self::Recurrent(Recurrent { offset, form }), Some([conv, memory])) => {
                let state = RecurrentState { conv, memory };
                KvCache::Recurrent(RecurrentCache::restored(form, state, offset))
            }
        }
    }

    /// The names of the layer's arrays.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Plain(_) | Self::Rotating(_) => ["keys", "values"],
            Self::Recurrent(_) => ["conv", "memory"],
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
        for (name, array) in cache.arrays().into_iter().flatten() {
            tensors.push((format!("layers.{i}.{name}"), to_host(array)?));
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
        let [first, second] = layer.names().map(|part| format!("{name}.{part}"));
        if layer.offset() == 0 && !self.file.contains(&first) {
            return Ok(layer.fresh().cache(None));
        }
        let arrays = match layer {
            Layer::Plain(_) | Layer::Rotating(_) => {
                self.keys_and_values(&first, &second, form.dtype, form.kv_shapes[i])?
            }
            Layer::Recurrent(recurrent) => {
                let RecurrentForm { inputs, channels, heads, value_dim, key_dim } = recurrent.form;
                let conv = self.array(&first, form.dtype, &[inputs, channels])?;
                let memory = self.array(&second, Dtype::F32, &[heads, value_dim, key_dim])?;
                self.same(format!("the batch of {second}"), memory.dim(0), conv.dim(0))?;
                [conv, memory]
            }
        };
        if !layer.fits(&arrays[0]) {
            let wanted = format!("counters that arrays of {:?} can have", arrays[0].shape());
            return Err(self.unfit(&name, text, wanted));
        }
        Ok(layer.cache(Some(arrays)))
    }

    fn keys_and_values(
        &self,
        first: &str,
        second: &str,
        dtype: Dtype,
        kv_shape: [usize; 2],
    ) -> Result<[Array; 2], EngineError> {
        let [heads, dim] = kv_shape.map(|extent| extent as i32);
        let keys = self.array(first, dtype, &[heads, POSITIONS, dim])?;
        let values = self.array(second, dtype, &[heads, POSITIONS, dim])?;
        let what = format!("the shape of {second}");
        self.same(what, Shown(values.shape()), Shown(keys.shape()))?;
        Ok([keys, values])
    }

    /// A tensor `[batch, extents]` of a dtype.
    fn array(&self, name: &str, dtype: Dtype, extents: &[i32]) -> Result<Array, EngineError> {
        let view = self.file.view(name)?;
        self.same(format!("the dtype of {name}"), view.dtype().name(), dtype.name())?;
        let fits = match view.shape() {
            [batch, found @ ..] => {
                let same = |(found, wanted): (&usize, &i32)| {
                    *wanted == POSITIONS || *found as u64 == *wanted as u64
                };
                *batch > 0 && found.len() == extents.len() && found.iter().zip(extents).all(same)
            }
            [] => false,
        };
        if !fits {
            let shown = |extent: &i32| match *extent {
                POSITIONS => "positions".to_owned(),
                extent => extent.to_string(),
            };
            let extents: Vec<String> = extents.iter().map(shown).collect();
            let wanted = format!("[batch, {}]", extents.join(", "));
            let found = format!("{:?}", view.shape());
            return Err(self.unfit(format!("the shape of {name}"), found, wanted));
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
