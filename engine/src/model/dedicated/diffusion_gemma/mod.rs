//! `diffusion_gemma`: a prompt is read token by token as in gemma4, and the answer is a canvas of
//! noise, denoised whole in a few steps: `models/diffusion_gemma/` and `generate/diffusion.py` under
//! `optiq/vlm/_mlxvlm` of mlx-optiq.

mod attention;
mod config;
mod decoding;
mod denoise;
mod experts;
mod layer;
mod mlp;
mod plan;
mod rope;
mod sampler;
mod wire;

use mlx_rs::{Array, Dtype};

use self::attention::{Before, Prefix};
use self::config::DiffusionGemmaConfig;
use self::layer::Layer;
use self::mlp::SelfConditioning;
use crate::cache::{KvCache, PlainCache, RotatingCache};
use crate::config::{ConfigFile, Dims, LayerKind};
use crate::error::EngineError;
use crate::fault::Fault;
use crate::model::Network;
use crate::model::ladder::Dedicated;
use crate::nn::{Embedding, RmsNorm};
use crate::ops::{self, Mask, SliceAxis};
use crate::taps::TapSink;
use crate::weights::Weights;

pub(super) const ROW: Dedicated = Dedicated {
    model_type: "diffusion_gemma",
    keys: || DiffusionGemmaConfig::keys().to_vec(),
    fits: |_| true,
    check: |file| DiffusionGemmaConfig::read(file).map(drop),
    load: |file, weights, fault| Ok(Box::new(DiffusionGemma::load(file, weights, fault)?)),
};

/// The network, which reads and denoises with the same layers.
pub(crate) struct DiffusionGemma {
    config: DiffusionGemmaConfig,
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    self_conditioning: SelfConditioning,
    fault: Option<Fault>,
}

impl DiffusionGemma {
    /// Reads the config and takes the tensors out of a checkpoint.
    fn load(
        file: &ConfigFile,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let config = DiffusionGemmaConfig::read(file)?;
        let dims = config.dims;
        weights.discard(dropped);
        Ok(Self {
            embed_tokens: weights
                .embedding("model.decoder.embed_tokens", [dims.vocab_size, dims.hidden_size])?,
            layers: (0..dims.num_layers)
                .map(|index| Layer::load(&config, weights, index, fault))
                .collect::<Result<_, _>>()?,
            norm: weights.norm("model.decoder.norm", dims.hidden_size, dims.eps)?,
            self_conditioning: SelfConditioning::load(
                &config,
                weights,
                "model.decoder.self_conditioning",
            )?,
            config,
            fault,
        })
    }

    /// Takes ids `[1, n]` into the caches (`EncoderModel`).
    fn read(
        &self,
        ids: &Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<(), EngineError> {
        let mut h = self.embed(&self.without_media(ids)?, sink)?;
        let masks = [LayerKind::Full, LayerKind::Sliding]
            .map(|kind| self.reading_mask(kind, h.dim(1), caches));
        let [full, sliding] = masks;
        let (full, sliding) = (full?, sliding?);
        for (index, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            sink.enter(Some(index));
            let mask = if layer.kind == LayerKind::Full { &full } else { &sliding };
            h = layer.forward(&h, mask, Before::Read(cache), sink)?;
        }
        sink.enter(None);
        Ok(())
    }

    /// The mask of a kind of layer, from the first cache of the kind.
    fn reading_mask(
        &self,
        kind: LayerKind,
        count: i32,
        caches: &[KvCache],
    ) -> Result<Mask, EngineError> {
        let window = (kind == LayerKind::Sliding).then_some(self.config.window as i32);
        match self.layers.iter().position(|layer| layer.kind == kind) {
            Some(index) => caches[index].mask(count, window),
            None => Ok(Mask::Full),
        }
    }

    /// The embedding's rows times the root of the width.
    fn embed(&self, ids: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let h = self.embed_tokens.forward(ids)?;
        sink.tap("embed", &h);
        let root = ops::scalar(self.embed_scale(), h.dtype())?;
        ops::multiply(&h, &root)
    }

    fn embed_scale(&self) -> f64 {
        (self.config.dims.hidden_size as f64).powf(0.5)
    }

    /// Ids with those that stand for images and videos replaced by the padding's.
    fn without_media(&self, ids: &Array) -> Result<Array, EngineError> {
        let pad = Array::from_int(self.config.pad_token as i32);
        self.config.media_tokens.iter().try_fold(ids.clone(), |seen, &token| {
            let is_media = ops::equal(ids, &Array::from_int(token as i32))?;
            ops::select(&is_media, &pad, &seen)
        })
    }

    /// What each layer shows a canvas of `length` tokens (`_make_decoder_masks`, and the cut to the
    /// window in `Attention`).
    fn prefixes(&self, caches: &[KvCache], length: i32) -> Result<Vec<Prefix>, EngineError> {
        let offset = caches.first().map_or(0, KvCache::offset);
        let prefix = |(layer, cache): (&Layer, &KvCache)| {
            let rows = cache.in_order()?;
            match (layer.kind, rows) {
                (LayerKind::Sliding, Some(rows)) => self.windowed(rows, length, offset),
                (_, rows) => Ok(Prefix { rows, mask: Mask::Full, offset }),
            }
        };
        self.layers.iter().zip(caches).map(prefix).collect()
    }

    /// A sliding layer's last rows: a canvas sees one less than the window of them.
    fn windowed(
        &self,
        (keys, values): (Array, Array),
        length: i32,
        offset: i32,
    ) -> Result<Prefix, EngineError> {
        let (window, held) = (self.config.window as i32 - 1, keys.dim(2));
        if held <= window {
            return Ok(Prefix { rows: Some((keys, values)), mask: Mask::Full, offset });
        }
        let positions = ops::arange(0, held)?;
        let visible = ops::greater_equal(&positions, &Array::from_int(held - window))?;
        let canvas = ops::broadcast_to(&Array::from_bool(true), &[length])?;
        let row = ops::concatenate(&[&visible, &canvas], 0)?;
        let shown = |row: &Array| -> Result<Mask, EngineError> {
            let row = ops::reshape(row, &[1, 1, 1, row.dim(0)])?;
            Ok(Mask::Allowed(ops::broadcast_to(&row, &[1, 1, length, row.dim(3)])?))
        };
        if window == 0 {
            return Ok(Prefix { rows: Some((keys, values)), mask: shown(&row)?, offset });
        }
        let last = |rows: &Array| ops::rows_of_last_but_one(rows, held - window, held);
        let cut = ops::slice(&row, &[SliceAxis::range(held - window, held + length)])?;
        Ok(Prefix { rows: Some((last(&keys)?, last(&values)?)), mask: shown(&cut)?, offset })
    }

    /// One look at a canvas of ids `[1, n]`: logits `[1, n, vocab]` in f32. `soft` are the soft
    /// embeddings of the step before, `[1, n, hidden]`.
    fn logits(
        &self,
        ids: &Array,
        soft: Option<&Array>,
        prefixes: &[Prefix],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let embedded = self.embed(ids, sink)?;
        let soft = match soft {
            Some(soft) => ops::cast(soft, embedded.dtype())?,
            None => ops::zeros(embedded.shape(), embedded.dtype())?,
        };
        let mut h = self.self_conditioning.forward(&embedded, &soft, sink)?;
        for (index, (layer, prefix)) in self.layers.iter().zip(prefixes).enumerate() {
            sink.enter(Some(index));
            h = layer.forward(&h, &Mask::Full, Before::Canvas(prefix), sink)?;
        }
        sink.enter(None);
        let h = self.norm.forward(&h)?;
        sink.tap("norm", &h);
        let logits = ops::cast(&self.embed_tokens.as_linear(&h)?, Dtype::Float32)?;
        let bound = ops::constant(self.config.softcap, Dtype::Float32)?;
        ops::multiply(&ops::tanh(&ops::divide(&logits, &bound)?)?, &bound)
    }
}

/// What `sanitize` drops: the encoder shares the decoder's weights but for its layer scalars, and text
/// needs no vision tower.
fn dropped(name: &str) -> bool {
    let tower = ["model.encoder.vision_tower.", "model.encoder.embed_vision."];
    name.contains("rotary_emb")
        || name == "lm_head.weight"
        || tower.iter().any(|prefix| name.starts_with(prefix))
        || (name.starts_with("model.encoder.language_model.") && !name.ends_with(".layer_scalar"))
}

impl Network for DiffusionGemma {
    fn forward(
        &self,
        _ids: &Array,
        _caches: &mut [KvCache],
        _sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        Err(EngineError::NotAutoregressive { model_type: ROW.model_type })
    }

    fn new_caches(&self) -> Vec<KvCache> {
        let cache = |layer: &Layer| match layer.kind {
            LayerKind::Full => KvCache::Plain(PlainCache::new()),
            LayerKind::Sliding => {
                KvCache::Rotating(RotatingCache::new(self.config.window as i32, 0))
            }
        };
        self.layers.iter().map(cache).collect()
    }

    fn dims(&self) -> &Dims {
        &self.config.dims
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }

    fn denoiser(&self) -> Option<&DiffusionGemma> {
        Some(self)
    }
}
