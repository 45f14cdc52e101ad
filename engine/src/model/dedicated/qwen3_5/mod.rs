//! `mlx_lm/models/qwen3_5.py`: gated delta nets, with gated attention in every few layers.

mod attention;
mod gated_delta;
mod layer;
pub(in crate::model) mod recurrence;

use mlx_rs::{Array, Dtype};

use layer::Layer;

use crate::cache::{KvCache, PlainCache, RecurrentCache, RecurrentForm};
use crate::config::{Dims, Qwen35Config};
use crate::error::EngineError;
use crate::fault::Fault;
use crate::model::Network;
use crate::model::ladder::Dedicated;
use crate::nn::{Embedding, Linear, RmsNorm};
use crate::taps::TapSink;
use crate::weights::Weights;

pub(super) const ROW: Dedicated = row("qwen3_5");

/// Both types are one class; this one's `sanitize` also takes experts apart.
pub(super) const MOE_ROW: Dedicated = row("qwen3_5_moe");

const fn row(model_type: &'static str) -> Dedicated {
    Dedicated {
        model_type,
        keys: || Qwen35Config::keys().to_vec(),
        fits: |_| true,
        check: |file| Qwen35Config::read(file).map(drop),
        load: |file, weights, fault| {
            Ok(Box::new(Qwen35::load(Qwen35Config::read(file)?, weights, fault)?))
        },
    }
}

/// The text model.
struct Qwen35 {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    /// None where the embedding is the output projection too.
    lm_head: Option<Linear>,
    config: Qwen35Config,
}

/// How the norms of a checkpoint are loaded: [`Weights::norm`] or [`Weights::one_plus_norm`].
type LoadNorm = fn(&mut Weights, &str, usize, f64) -> Result<RmsNorm, EngineError>;

const ROOT: &str = "language_model.model";

impl Qwen35 {
    /// Takes the architecture's tensors out of a checkpoint, in mlx-lm's layout or the original one.
    fn load(
        config: Qwen35Config,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let norm = sanitize(weights)?;
        let dims = config.dims;
        let table = [dims.vocab_size, dims.hidden_size];
        Ok(Self {
            embed_tokens: weights.embedding(&format!("{ROOT}.embed_tokens"), table)?,
            layers: (0..dims.num_layers)
                .map(|i| Layer::load(&config, weights, i, norm, fault))
                .collect::<Result<_, _>>()?,
            norm: norm(weights, &format!("{ROOT}.norm"), dims.hidden_size, dims.eps)?,
            lm_head: (!config.tied)
                .then(|| weights.linear("language_model.lm_head", table, false))
                .transpose()?,
            config,
        })
    }
}

/// `sanitize`: the names of the text model, without the parts that see and that draft. Original
/// checkpoints, known by the layout of their convolutions, hold the norms less one.
fn sanitize(weights: &mut Weights) -> Result<LoadNorm, EngineError> {
    weights.discard(|name| name.starts_with("vision_tower") || name.starts_with("model.visual"));
    weights.rename(|name| match name.strip_prefix("model.language_model") {
        Some(rest) => format!("{ROOT}{rest}"),
        None if name.starts_with("language_model.") => name.to_owned(),
        None => format!("language_model.{name}"),
    });
    let is_original = |name: &str| -> Result<bool, EngineError> {
        Ok(weights.shape(name)?.is_some_and(|shape| shape.last() != Some(&1)))
    };
    let convolutions = weights.names().filter(|name| name.contains("conv1d.weight"));
    let original = convolutions.map(is_original).collect::<Result<Vec<_>, _>>()?.contains(&true);
    weights.discard(|name| name.contains("mtp."));
    Ok(if original { Weights::one_plus_norm } else { Weights::norm })
}

impl Network for Qwen35 {
    fn forward(
        &self,
        ids: &Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let mut h = self.embed_tokens.forward(ids)?;
        sink.tap("embed", &h);
        let mask = caches[self.config.interval - 1].mask(h.dim(1), None)?;
        for (i, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            sink.enter(Some(i));
            h = layer.forward(&h, &mask, cache, sink)?;
        }
        sink.enter(None);
        let [logits] = sink.segment("head", [&h], |[h], sink| {
            let h = self.norm.forward(h)?;
            sink.tap("norm", &h);
            let logits = match &self.lm_head {
                Some(head) => head.forward(&h)?,
                None => self.embed_tokens.as_linear(&h)?,
            };
            sink.tap("logits", &logits);
            Ok([logits])
        })?;
        Ok(logits)
    }

    fn has_segments(&self) -> bool {
        true
    }

    fn new_caches(&self) -> Vec<KvCache> {
        let linear = self.config.linear;
        let form = RecurrentForm {
            inputs: linear.taps as i32 - 1,
            channels: linear.channels() as i32,
            heads: linear.value_heads as i32,
            value_dim: linear.value_dim as i32,
            key_dim: linear.key_dim as i32,
        };
        let cache = |i| {
            if self.config.is_linear(i) {
                KvCache::Recurrent(RecurrentCache::new(form))
            } else {
                KvCache::Plain(PlainCache::new())
            }
        };
        (0..self.layers.len()).map(cache).collect()
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
