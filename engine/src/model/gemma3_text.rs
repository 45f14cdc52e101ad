//! `mlx_lm/models/gemma3_text.py`.

use half::f16;
use mlx_rs::{Array, Dtype};

use super::Network;
use super::attention::{Attention, HeadNorms, projections, rope};
use super::mlp::Mlp;
use crate::cache::{KvCache, PlainCache, RotatingCache};
use crate::config::{ConfigFile, Dims, Gemma3TextConfig, LayerKind};
use crate::error::EngineError;
use crate::fault::Fault;
use crate::nn::{Embedding, Linear, RmsNorm};
use crate::ops::{self, Mask};
use crate::taps::TapSink;
use crate::weights::Weights;

/// A stack of layers that norm before and after each block, most of them under a sliding window.
pub(super) struct Gemma3Text {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    /// None where the checkpoint has none: then the embedding is the output projection too.
    lm_head: Option<Linear>,
    config: Gemma3TextConfig,
}

struct Layer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    pre_feedforward_layernorm: RmsNorm,
    mlp: Mlp,
    post_feedforward_layernorm: RmsNorm,
}

impl Gemma3Text {
    /// Takes the architecture's tensors out of a checkpoint.
    pub(super) fn load(
        file: &ConfigFile,
        config: &Gemma3TextConfig,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let table = [dims.vocab_size, dims.hidden_size];
        // `sanitize` goes by the tensor, not by the config.
        let has_head = weights.has("lm_head.weight");
        if config.tied == Some(false) && !has_head {
            let wanted = "true, or a tensor lm_head.weight";
            return Err(file.unsupported("tie_word_embeddings", false, wanted));
        }
        Ok(Self {
            embed_tokens: weights.embedding("model.embed_tokens", table)?,
            layers: (0..dims.num_layers)
                .map(|i| Layer::load(config, weights, i, fault))
                .collect::<Result<_, _>>()?,
            norm: weights.one_plus_norm("model.norm", dims.hidden_size, dims.eps)?,
            lm_head: has_head.then(|| weights.linear("lm_head", table, false)).transpose()?,
            config: config.clone(),
        })
    }

    /// The embedded ids times the root of the width, which the reference rounds to bf16 first.
    fn embed(&self, ids: &Array) -> Result<Array, EngineError> {
        let h = self.embed_tokens.forward(ids)?;
        let root = (self.config.dims.hidden_size as f64).powf(0.5);
        let root = ops::cast(&ops::scalar(root, Dtype::Bfloat16)?, h.dtype())?;
        ops::multiply(&h, &root)
    }

    /// The masks of full and of sliding layers, each from the first cache of its kind.
    fn masks(&self, count: i32, caches: &[KvCache]) -> Result<[Mask; 2], EngineError> {
        let full = caches[self.config.pattern - 1].mask(count, None)?;
        let sliding = if self.config.pattern > 1 {
            caches[0].mask(count, Some(self.config.window as i32))?
        } else {
            Mask::Full
        };
        Ok([full, sliding])
    }
}

impl Network for Gemma3Text {
    fn forward(
        &self,
        ids: &Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let mut h = self.embed(ids)?;
        sink.tap("embed", &h);
        let [full, sliding] = self.masks(h.dim(1), caches)?;
        for (i, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            sink.enter(Some(i));
            let mask = if self.config.kind(i) == LayerKind::Full { &full } else { &sliding };
            h = layer.forward(&h, mask, cache, sink)?;
        }
        sink.enter(None);
        let h = self.norm.forward(&h)?;
        sink.tap("norm", &h);
        let logits = match &self.lm_head {
            Some(head) => head.forward(&h)?,
            None => self.embed_tokens.as_linear(&h)?,
        };
        sink.tap("logits", &logits);
        Ok(logits)
    }

    fn new_caches(&self) -> Vec<KvCache> {
        let cache = |i| match self.config.kind(i) {
            LayerKind::Full => KvCache::Plain(PlainCache::new()),
            LayerKind::Sliding => {
                KvCache::Rotating(RotatingCache::new(self.config.window as i32, 0))
            }
        };
        (0..self.layers.len()).map(cache).collect()
    }

    fn length_limit(&self) -> Option<i32> {
        self.layers.iter().find_map(|layer| layer.self_attn.rope.length_limit())
    }

    fn dims(&self) -> &Dims {
        &self.config.dims
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }
}

impl Layer {
    fn load(
        config: &Gemma3TextConfig,
        weights: &mut Weights,
        index: usize,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let path = format!("model.layers.{index}");
        let mut norm = |name: &str| {
            weights.one_plus_norm(&format!("{path}.{name}"), dims.hidden_size, dims.eps)
        };
        Ok(Self {
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm")?,
            post_feedforward_layernorm: norm("post_feedforward_layernorm")?,
            self_attn: attention(config, weights, index, fault)?,
            mlp: Mlp::load(weights, &format!("{path}.mlp"), dims, false, ops::gelu_approx)?,
        })
    }

    fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        cache: &mut KvCache,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let normed = self.input_layernorm.forward(x)?;
        sink.tap("input_layernorm", &normed);
        let r = self.self_attn.forward(&normed, mask, cache, sink)?;
        let r = self.post_attention_layernorm.forward(&r)?;
        sink.tap("post_attention_layernorm", &r);
        let h = clip_residual(x, &r)?;

        let normed = self.pre_feedforward_layernorm.forward(&h)?;
        sink.tap("pre_feedforward_layernorm", &normed);
        let r = self.post_feedforward_layernorm.forward(&self.mlp.forward(&normed, sink)?)?;
        sink.tap("post_feedforward_layernorm", &r);
        let out = clip_residual(&h, &r)?;
        sink.tap("out", &out);
        Ok(out)
    }
}

fn attention(
    config: &Gemma3TextConfig,
    weights: &mut Weights,
    index: usize,
    fault: Option<Fault>,
) -> Result<Attention, EngineError> {
    let dims = &config.dims;
    let path = format!("model.layers.{index}.self_attn");
    let [q_proj, k_proj, v_proj, o_proj] = projections(weights, &path, dims, false)?;
    let mut head_norm =
        |name: &str| weights.one_plus_norm(&format!("{path}.{name}"), dims.head_dim, dims.eps);
    let spec = match config.kind(index) {
        LayerKind::Full => &config.rope,
        LayerKind::Sliding => &config.local_rope,
    };
    Ok(Attention {
        q_proj,
        k_proj,
        v_proj,
        o_proj,
        head_norms: HeadNorms::AfterTranspose(head_norm("q_norm")?, head_norm("k_norm")?),
        rope: rope(spec, dims.head_dim, fault)?,
        heads: dims.heads as i32,
        kv_heads: dims.kv_heads as i32,
        scale: config.query_pre_attn_scalar.powf(-0.5) as f32,
        fault,
    })
}

/// `clip_residual`: x + y, in f16 summed in f32 and clipped to f16's range.
fn clip_residual(x: &Array, y: &Array) -> Result<Array, EngineError> {
    if x.dtype() != Dtype::Float16 {
        return ops::add(x, y);
    }
    let bound = |sign: f32| ops::scalar(f64::from(sign * f16::MAX.to_f32()), Dtype::Float32);
    let sum = ops::add(&ops::cast(x, Dtype::Float32)?, &ops::cast(y, Dtype::Float32)?)?;
    ops::cast(&ops::clip(&sum, &bound(-1.0)?, &bound(1.0)?)?, Dtype::Float16)
}
