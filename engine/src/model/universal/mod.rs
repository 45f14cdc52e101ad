//! The network that runs any [`Spec`](spec::Spec).

pub(super) mod archs;
pub(super) mod attention;
mod head;
mod kernel;
pub(super) mod layer;
pub(super) mod mlp;
pub(super) mod moe;
mod norm;
mod positions;
pub(super) mod router;
pub(super) mod spec;

use std::ops::Range;

use mlx_rs::{Array, Dtype};

use self::attention::Context;
use self::head::OutputHead;
use self::layer::Layer;
use self::norm::Norm;
use self::positions::Positions;
use self::spec::{EmbedScale, QueryScale, Spec};
use super::{HeadWeight, Network, Staged};
use crate::cache::{KvCache, PlainCache, RotatingCache};
use crate::config::{ConfigFile, Dims, LayerKind};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::nn::Embedding;
use crate::ops::{self, Mask};
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::Weights;

/// A decoder that a descriptor describes.
pub(super) struct Universal {
    embed_tokens: Embedding,
    positions: Option<Positions>,
    layers: Vec<Layer>,
    norm: Norm,
    head: OutputHead,
    spec: Spec,
    fault: Option<Fault>,
}

impl Universal {
    /// Takes the tensors of a descriptor out of a checkpoint.
    pub(super) fn load(
        file: &ConfigFile,
        spec: Spec,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let (dims, names) = (&spec.dims, &spec.names);
        if let Some(renamed) = spec.rename {
            weights.rename(renamed);
        }
        head::drop_unread(&spec, weights);
        let place = |i: usize| Place::root(format!("{}.{i}", names.layers));
        let layer =
            |(i, layer)| Layer::load(weights, &place(i), &spec, layer, fault::in_layer(fault, i));
        let layers = spec.layers.iter().enumerate().map(layer).collect::<Result<_, _>>()?;
        let embed_tokens = weights.embedding(names.embed, [dims.vocab_size, dims.hidden_size])?;
        let norm = Place::root(names.norm);
        Ok(Self {
            layers,
            norm: Norm::load(weights, &norm, spec.norm, dims.hidden_size, dims.eps, fault)?,
            head: OutputHead::load(file, &spec, weights, embed_tokens.dtype(), fault)?,
            embed_tokens,
            positions: Positions::load(&spec, weights)?,
            spec,
            fault,
        })
    }

    /// What the first layer sees of ids that come behind what its cache holds.
    fn embedded(&self, ids: &Array, cache: &KvCache) -> Result<Array, EngineError> {
        let h = self.scaled(self.embed_tokens.forward(ids)?)?;
        match &self.positions {
            Some(positions) => ops::add(&h, &positions.take(cache, h.dim(1))?),
            None => Ok(h),
        }
    }

    fn scaled(&self, h: Array) -> Result<Array, EngineError> {
        let dtype = h.dtype();
        let (number, rounded) = match self.spec.embed_scale {
            EmbedScale::None => return Ok(h),
            EmbedScale::Number(number) => (number, ops::scalar(number, dtype)?),
            EmbedScale::Bf16(number) => {
                (number, ops::cast(&ops::scalar(number, Dtype::Bfloat16)?, dtype)?)
            }
        };
        if fault::is(self.fault, Fault::EmbedScaleDtype) {
            let wide = ops::cast(&h, Dtype::Float32)?;
            let scaled = ops::multiply(&wide, &ops::scalar(number, Dtype::Float32)?)?;
            return ops::cast(&scaled, dtype);
        }
        ops::multiply(&h, &rounded)
    }

    /// The masks of full and of sliding layers, each from the first cache of its kind.
    fn masks(&self, count: i32, caches: &[KvCache]) -> Result<[Mask; 2], EngineError> {
        let window = self.spec.window.map(|window| window as i32);
        let mask = |kind, window| match self.layers.iter().position(|layer| layer.kind == kind) {
            Some(layer) => caches[layer].mask(count, window),
            None => Ok(Mask::Full),
        };
        Ok([mask(LayerKind::Full, None)?, mask(LayerKind::Sliding, window)?])
    }

    /// A run of layers, whose masks go by where all caches stand before it.
    fn run(
        &self,
        range: Range<usize>,
        mut h: Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let (count, dtype) = (h.dim(1), h.dtype());
        let [full, sliding] = self.masks(count, caches)?;
        let query_scale = self.spec.query_scale.map(|scale| scale.of(&caches[0], count, dtype));
        let query_scale = query_scale.transpose()?;
        for i in range {
            sink.enter(Some(i));
            let (layer, cache) = (&self.layers[i], &mut caches[i]);
            let mask = if layer.kind == LayerKind::Full { &full } else { &sliding };
            let context = Context { mask, query_scale: query_scale.as_ref(), cache };
            h = layer.forward(&h, context, sink)?;
        }
        Ok(h)
    }

    fn logits(&self, h: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let [logits] = sink.segment("head", [h], |[h], sink| {
            let h = self.norm.forward(h)?;
            sink.tap("norm", &h);
            Ok([self.head.forward(&h, &self.embed_tokens, sink)?])
        })?;
        Ok(logits)
    }
}

impl Network for Universal {
    fn forward(
        &self,
        ids: &Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let h = self.embedded(ids, &caches[0])?;
        sink.tap("embed", &h);
        let h = self.run(0..self.layers.len(), h, caches, sink)?;
        sink.enter(None);
        self.logits(&h, sink)
    }

    fn staged(&self) -> Option<&dyn Staged> {
        Some(self)
    }

    fn has_segments(&self) -> bool {
        true
    }

    fn new_caches(&self) -> Vec<KvCache> {
        let cache = |layer: &Layer| match (layer.kind, self.spec.window) {
            (LayerKind::Sliding, Some(window)) if !self.spec.keeps_all => {
                KvCache::Rotating(RotatingCache::new(window as i32, 0))
            }
            _ => KvCache::Plain(PlainCache::new()),
        };
        self.layers.iter().map(cache).collect()
    }

    fn reads_packed(&self) -> bool {
        self.layers.iter().all(|layer| layer.attention.reads_packed(self.dtype()))
    }

    fn position_limit(&self) -> Option<usize> {
        self.positions.as_ref().map(Positions::rows)
    }

    fn length_limit(&self) -> Option<i32> {
        self.layers.iter().find_map(|layer| layer.attention.length_limit())
    }

    fn stretches_from(&self) -> Option<i32> {
        self.layers.iter().find_map(|layer| layer.attention.stretches_from())
    }

    fn dims(&self) -> &Dims {
        &self.spec.dims
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }
}

impl Staged for Universal {
    fn embed(&self, ids: &Array, caches: &[KvCache]) -> Result<Array, EngineError> {
        self.embedded(ids, &caches[0])
    }

    fn layers(
        &self,
        range: Range<usize>,
        h: &Array,
        caches: &mut [KvCache],
    ) -> Result<Array, EngineError> {
        self.run(range, h.clone(), caches, &mut TapSink::default())
    }

    fn head(&self, h: &Array) -> Result<Array, EngineError> {
        self.logits(h, &mut TapSink::default())
    }

    fn factors(&self, h: &Array) -> Result<Option<(Array, HeadWeight)>, EngineError> {
        let weight = self.head.product(&self.embed_tokens);
        weight.map(|weight| Ok((self.norm.forward(h)?, weight))).transpose()
    }
}

impl QueryScale {
    /// The factors of `count` positions from where a cache stands: `[count, 1]`, or `[sequences, 1, count,
    /// 1]` where its sequences differ in length.
    fn of(self, cache: &KvCache, count: i32, dtype: Dtype) -> Result<Array, EngineError> {
        let number = |value: f64| ops::scalar(value, Dtype::Float32);
        let positions = positions::positions(cache, count)?;
        let positions = ops::cast(&positions, Dtype::Float32)?;
        // `mx.floor_divide` of floats is the reference's floor of a quotient.
        let times = ops::floor_divide(&positions, &number(self.original as f64)?)?;
        let growth = ops::log(&ops::add(&number(1.0)?, &times)?)?;
        let factors = ops::add(&number(1.0)?, &ops::multiply(&number(self.beta)?, &growth)?)?;
        let factors = ops::expand_dims(&factors, -1)?;
        let several = factors.ndim() == 3;
        ops::cast(&if several { ops::expand_dims(&factors, 1)? } else { factors }, dtype)
    }
}
