//! The caches of one batch of sequences in a safetensors file.
//!
//! Tensors `layers.{i}.keys` and `layers.{i}.values`, whole buffers as `save_prompt_cache` of
//! `mlx_lm/models/cache.py` keeps them (packed ones as `.words`, `.scales` and `.biases` of either), or
//! `layers.{i}.conv` and `layers.{i}.memory`; metadata `format`, `model`, `composition` and `layers.{i}`, a layer's
//! kind and counters in JSON. A cache that never saw a position has no tensors.

mod layer;

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::path::Path;

use mlx_parity_tensor::safetensors::{self, SafetensorsFile};
use mlx_parity_tensor::{Dtype, HostTensor};
use mlx_rs::Array;

use self::layer::{Layer, Wanted};
use super::KvCache;
use crate::array::{from_view, to_host};
use crate::composition::Plan;
use crate::error::EngineError;

const FORMAT: &str = "mlx-parity caches 2";

/// Stands for any extent in a wanted shape.
const POSITIONS: i32 = -1;

/// What the caches of a model look like.
pub(crate) struct Form<'a> {
    /// Identifies the model.
    pub(crate) model: &'a str,
    pub(crate) dtype: Dtype,
    /// What else the arrays may have come to be: f32, behind residuals that are not cast.
    pub(crate) widened: Option<Dtype>,
    /// Heads and head width of each cache's keys; unused where a cache keeps something else.
    pub(crate) kv_shapes: Vec<[usize; 2]>,
    /// Of the decoder.
    pub(crate) plan: &'a Plan,
}

/// Writes the caches.
pub(crate) fn save(path: &Path, caches: &[KvCache], form: &Form) -> Result<(), EngineError> {
    let mut metadata = BTreeMap::from([
        ("format".to_owned(), FORMAT.to_owned()),
        ("model".to_owned(), form.model.to_owned()),
        ("composition".to_owned(), form.plan.text().to_owned()),
    ]);
    let mut tensors: Vec<(String, HostTensor)> = Vec::new();
    for (i, cache) in caches.iter().enumerate() {
        let layer = serde_json::json!(Layer::of(cache)?).to_string();
        metadata.insert(format!("layers.{i}"), layer);
        for (name, array) in cache.arrays() {
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
    saved.same("the composition", saved.about("composition")?, form.plan.text())?;
    let layers = saved.file.metadata().len() - 3;
    saved.same("the number of layers", layers, empty.len())?;
    let caches: Vec<KvCache> = empty
        .iter()
        .enumerate()
        .map(|(i, empty)| saved.layer(i, empty, form))
        .collect::<Result<_, _>>()?;
    let held = caches.iter().map(|cache| cache.arrays().len()).sum();
    saved.same("the number of tensors", saved.file.names().len(), held)?;
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
        let (found, own) = (layer.fresh(), Layer::of(empty)?);
        if Some(found) != own.packed(form.plan.composition().bits(i)) {
            self.same(format!("{name}, empty,"), Shown(found), Shown(own))?;
        }
        let wanted = layer.wanted(form, i);
        let first = wanted.first().map(|wanted| format!("{name}.{}", wanted.name));
        if layer.offset() == 0 && first.is_some_and(|first| !self.file.contains(&first)) {
            return Ok(layer.fresh().cache(Vec::new(), form.plan.route()));
        }
        let arrays = self.arrays(&name, &wanted)?;
        if !layer.fits(&arrays[0]) {
            let wanted = format!("counters that arrays of {:?} can have", arrays[0].shape());
            return Err(self.unfit(&name, text, wanted));
        }
        Ok(layer.cache(arrays, form.plan.route()))
    }

    /// The tensors of a layer, of one batch and, where they hold positions, as many of them.
    fn arrays(&self, layer: &str, wanted: &[Wanted]) -> Result<Vec<Array>, EngineError> {
        let mut arrays: Vec<Array> = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let name = format!("{layer}.{}", wanted.name);
            let array = self.array(&name, wanted)?;
            if let Some(first) = arrays.first() {
                self.same(format!("the batch of {name}"), array.dim(0), first.dim(0))?;
                if wanted.extents.contains(&POSITIONS) {
                    self.same(format!("the positions of {name}"), array.dim(2), first.dim(2))?;
                }
            }
            arrays.push(array);
        }
        Ok(arrays)
    }

    /// A tensor `[batch, extents]`.
    fn array(&self, name: &str, wanted: &Wanted) -> Result<Array, EngineError> {
        let Wanted { dtype, widened, extents, .. } = wanted;
        let view = self.file.view(name)?;
        if Some(view.dtype()) != *widened {
            self.same(format!("the dtype of {name}"), view.dtype().name(), dtype.name())?;
        }
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
