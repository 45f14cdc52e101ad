//! llama and qwen3: `mlx_lm/models/llama.py` and `mlx_lm/models/qwen3.py`.

use mlx_rs::{Array, Dtype};

use super::Network;
use super::attention::{Attention, HeadNorms, projections, rope};
use super::mlp::Mlp;
use crate::cache::{KvCache, PlainCache, RotatingCache};
use crate::config::{DenseConfig, Dims, LayerKind};
use crate::error::EngineError;
use crate::fault::Fault;
use crate::nn::{Embedding, Linear, RmsNorm};
use crate::ops::{self, Mask};
use crate::taps::TapSink;
use crate::weights::Weights;

/// A stack of layers that norm before each block and add after it.
pub(super) struct Dense {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    /// None where the embedding is the output projection too.
    lm_head: Option<Linear>,
    window: Option<i32>,
    dims: Dims,
}

struct Layer {
    kind: LayerKind,
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

impl Dense {
    /// Takes the architecture's tensors out of a checkpoint.
    pub(super) fn load(
        config: &DenseConfig,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let table = [dims.vocab_size, dims.hidden_size];
        // What `sanitize` drops: precomputed rope frequencies, and the head of a tied model.
        weights.discard(|name| !config.qk_norm && name.contains("self_attn.rotary_emb.inv_freq"));
        if config.tied && weights.has("lm_head.weight") {
            tracing::warn!(
                "lm_head.weight is dropped: the embedding is tied, or by mlx-lm's default"
            );
            weights.discard(|name| name == "lm_head.weight");
        }
        Ok(Self {
            embed_tokens: weights.embedding("model.embed_tokens", table)?,
            layers: (0..dims.num_layers)
                .map(|i| Layer::load(config, weights, i, fault))
                .collect::<Result<_, _>>()?,
            norm: weights.norm("model.norm", dims.hidden_size, dims.eps)?,
            lm_head: (!config.tied).then(|| weights.linear("lm_head", table, false)).transpose()?,
            window: config.window.map(|window| window as i32),
            dims: *dims,
        })
    }

    /// The masks of full and of sliding layers, each from the first cache of its kind.
    fn masks(&self, count: i32, caches: &[KvCache]) -> Result<[Mask; 2], EngineError> {
        let first = |kind| self.layers.iter().position(|layer| layer.kind == kind);
        let full = match first(LayerKind::Full) {
            Some(layer) => caches[layer].mask(count, None)?,
            None => Mask::Full,
        };
        let sliding = match first(LayerKind::Sliding) {
            Some(layer) => caches[layer].mask(count, self.window)?,
            None => Mask::Full,
        };
        Ok([full, sliding])
    }
}

impl Network for Dense {
    fn forward(
        &self,
        ids: &Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let mut h = self.embed_tokens.forward(ids)?;
        sink.tap("embed", &h);
        let [full, sliding] = self.masks(h.dim(1), caches)?;
        for (i, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            sink.enter(Some(i));
            let mask = if layer.kind == LayerKind::Full { &full } else { &sliding };
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
        let cache = |layer: &Layer| match (layer.kind, self.window) {
            (LayerKind::Sliding, Some(window)) => KvCache::Rotating(RotatingCache::new(window, 0)),
            _ => KvCache::Plain(PlainCache::new()),
        };
        self.layers.iter().map(cache).collect()
    }

    fn length_limit(&self) -> Option<i32> {
        self.layers.iter().find_map(|layer| layer.self_attn.rope.length_limit())
    }

    fn dims(&self) -> &Dims {
        &self.dims
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }
}

impl Layer {
    fn load(
        config: &DenseConfig,
        weights: &mut Weights,
        index: usize,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let path = format!("model.layers.{index}");
        let mut norm =
            |name: &str| weights.norm(&format!("{path}.{name}"), dims.hidden_size, dims.eps);
        Ok(Self {
            kind: config.layers[index],
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            self_attn: attention(config, weights, &format!("{path}.self_attn"), fault)?,
            mlp: Mlp::load(weights, &format!("{path}.mlp"), dims, config.biases.mlp, ops::silu)?,
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
        let h = ops::add(x, &self.self_attn.forward(&normed, mask, cache, sink)?)?;
        let normed = self.post_attention_layernorm.forward(&h)?;
        sink.tap("post_attention_layernorm", &normed);
        let out = ops::add(&h, &self.mlp.forward(&normed, sink)?)?;
        sink.tap("out", &out);
        Ok(out)
    }
}

fn attention(
    config: &DenseConfig,
    weights: &mut Weights,
    path: &str,
    fault: Option<Fault>,
) -> Result<Attention, EngineError> {
    let dims = &config.dims;
    let [q_proj, k_proj, v_proj, o_proj] =
        projections(weights, path, dims, config.biases.attention)?;
    let mut head_norm =
        |name: &str| weights.norm(&format!("{path}.{name}"), dims.head_dim, dims.eps);
    let head_norms = if config.qk_norm {
        HeadNorms::BeforeTranspose(head_norm("q_norm")?, head_norm("k_norm")?)
    } else {
        HeadNorms::None
    };
    Ok(Attention {
        q_proj,
        k_proj,
        v_proj,
        o_proj,
        head_norms,
        rope: rope(&config.rope, dims.head_dim, fault)?,
        heads: dims.heads as i32,
        kv_heads: dims.kv_heads as i32,
        scale: (dims.head_dim as f64).powf(-0.5) as f32,
        fault,
    })
}
