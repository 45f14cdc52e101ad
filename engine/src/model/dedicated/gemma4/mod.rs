//! `mlx_lm/models/gemma4_text.py`, and `mlx_lm/models/gemma4.py`, which wraps it.

mod attention;
mod experts;
mod layer;
mod names;
mod per_layer;

pub(in crate::model) use names::Names;

use mlx_rs::{Array, Dtype};

use crate::cache::{KvCache, PlainCache, RotatingCache};
use crate::config::{ConfigFile, Dims, Gemma4Layer, Gemma4TextConfig, KeyValues, LayerKind};
use crate::error::EngineError;
use crate::fault::Fault;
use crate::model::Network;
use crate::model::ladder::Dedicated;
use crate::model::parts::{compiled_softcap, times};
use crate::nn::{Embedding, Linear, RmsNorm};
use crate::ops::Mask;
use crate::taps::TapSink;
use crate::weights::Weights;

use attention::CallState;
use layer::Layer;
use per_layer::PerLayerInputs;

pub(super) const TEXT_ROW: Dedicated = Dedicated {
    model_type: "gemma4_text",
    keys: || Gemma4TextConfig::text_keys().to_vec(),
    fits: |_| true,
    check: |file| Gemma4TextConfig::read_text(file).map(drop),
    load,
};

pub(super) const ROW: Dedicated = Dedicated {
    model_type: "gemma4",
    keys: || Gemma4TextConfig::keys().to_vec(),
    fits: |_| true,
    check: |file| Gemma4TextConfig::read(file).map(drop),
    load,
};

fn load(
    file: &ConfigFile,
    weights: &mut Weights,
    fault: Option<Fault>,
) -> Result<Box<dyn Network>, EngineError> {
    let (config, names) = sanitize(file, weights)?;
    Ok(Box::new(Gemma4Text::load(config, names, weights, fault)?))
}

/// Reads either kind of config, and gives the tensors the names of [`Names`]; those that nothing reads
/// are dropped.
pub(in crate::model) fn sanitize(
    file: &ConfigFile,
    weights: &mut Weights,
) -> Result<(Gemma4TextConfig, Names), EngineError> {
    let (config, names) = if file.model_type()? == TEXT_ROW.model_type {
        (Gemma4TextConfig::read_text(file)?, Names::TEXT)
    } else {
        Names::unwrap(weights);
        (Gemma4TextConfig::read(file)?, Names::MULTIMODAL)
    };
    names::discard_unread(&config, weights);
    Ok((config, names))
}

/// A stack of layers that norm before and after each block. Some keep keys and values of their own,
/// the rest read those of an earlier layer; each may take a second input beside the residual stream.
struct Gemma4Text {
    embed_tokens: Embedding,
    per_layer_inputs: Option<PerLayerInputs>,
    layers: Vec<Layer>,
    norm: RmsNorm,
    /// None where the embedding is the output projection too.
    lm_head: Option<Linear>,
    config: Gemma4TextConfig,
}

impl Gemma4Text {
    /// Takes the architecture's tensors out of a checkpoint.
    fn load(
        config: Gemma4TextConfig,
        names: Names,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let table = [dims.vocab_size, dims.hidden_size];
        Ok(Self {
            embed_tokens: weights.embedding(&names.of("embed_tokens"), table)?,
            per_layer_inputs: PerLayerInputs::load(&config, names, weights)?,
            layers: (0..dims.num_layers)
                .map(|i| Layer::load(&config, i, &names.of(&format!("layers.{i}")), weights, fault))
                .collect::<Result<_, _>>()?,
            norm: weights.norm(&names.of("norm"), dims.hidden_size, dims.eps)?,
            lm_head: (!config.tied)
                .then(|| weights.linear(names.head(), table, false))
                .transpose()?,
            config,
        })
    }

    /// The masks of full and of sliding layers, each from the first cache of its kind.
    fn masks(&self, count: i32, caches: &[KvCache]) -> Result<[Mask; 2], EngineError> {
        let of = |kind, window| {
            let first = self.config.layers.iter().position(|layer| layer.kind == kind);
            match first.and_then(|layer| caches.get(layer)) {
                Some(cache) => cache.mask(count, window),
                None => Ok(Mask::Full),
            }
        };
        let window = self.config.window as i32;
        Ok([of(LayerKind::Full, None)?, of(LayerKind::Sliding, Some(window))?])
    }

    /// Layer after layer; those that share read what an earlier one kept in this call.
    fn run_layers(
        &self,
        mut h: Array,
        slices: &[Option<Array>],
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let [full, sliding] = self.masks(h.dim(1), caches)?;
        let mut state = CallState::new(caches);
        for ((i, layer), slice) in self.layers.iter().enumerate().zip(slices) {
            sink.enter(Some(i));
            let mask = if layer.kind == LayerKind::Full { &full } else { &sliding };
            h = layer.forward(&h, mask, &mut state, slice.as_ref(), sink)?;
        }
        sink.enter(None);
        Ok(h)
    }

    fn logits(&self, h: &Array) -> Result<Array, EngineError> {
        let logits = match &self.lm_head {
            Some(head) => head.forward(h)?,
            None => self.embed_tokens.as_linear(h)?,
        };
        match self.config.final_softcap {
            Some(bound) => compiled_softcap(&logits, bound),
            None => Ok(logits),
        }
    }
}

impl Network for Gemma4Text {
    fn forward(
        &self,
        ids: &Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let embedded = self.embed_tokens.forward(ids)?;
        let root = (self.config.dims.hidden_size as f64).powf(0.5);
        let h = times(&embedded, root)?;
        sink.tap("embed", &h);
        let slices = match &self.per_layer_inputs {
            Some(inputs) => inputs.forward(ids, &h, sink)?,
            None => vec![None; self.layers.len()],
        };
        let h = self.run_layers(h, &slices, caches, sink)?;
        let [logits] = sink.segment("head", [&h], |[h], sink| {
            let h = self.norm.forward(h)?;
            sink.tap("norm", &h);
            let logits = self.logits(&h)?;
            sink.tap("logits", &logits);
            Ok([logits])
        })?;
        Ok(logits)
    }

    fn has_segments(&self) -> bool {
        true
    }

    /// Only layers with keys and values of their own have a cache; they stand first, so a layer's
    /// place is its cache's.
    fn new_caches(&self) -> Vec<KvCache> {
        let own = |layer: &&Gemma4Layer| !matches!(layer.key_values, KeyValues::Shared(_));
        let cache = |layer: &Gemma4Layer| match layer.kind {
            LayerKind::Full => KvCache::Plain(PlainCache::new()),
            LayerKind::Sliding => {
                KvCache::Rotating(RotatingCache::new(self.config.window as i32, 0))
            }
        };
        self.config.layers.iter().take_while(own).map(cache).collect()
    }

    fn kv_shape(&self, cache: usize) -> [usize; 2] {
        let layer = &self.config.layers[cache];
        [layer.kv_heads, layer.head_dim]
    }

    fn length_limit(&self) -> Option<i32> {
        self.layers.iter().find_map(Layer::length_limit)
    }

    fn stretches_from(&self) -> Option<i32> {
        self.layers.iter().find_map(Layer::stretches_from)
    }

    fn dims(&self) -> &Dims {
        &self.config.dims
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }
}
