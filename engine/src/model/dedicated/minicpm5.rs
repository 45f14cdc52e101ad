//! `MiniCPM5`: `mlx_lm/models/llama.py` without its branches, for configs of exactly known shapes.
//!
//! MiniCPM5-1B is published as a `llama` config. The same name covers models of other maths, so this
//! network asks for the whole shape, as the strict reader of llama configs understands it; any other
//! config goes on down the ladder. Both networks give the same bits.

use mlx_rs::{Array, Dtype};

use crate::cache::{KvCache, PlainCache};
use crate::config::{ConfigFile, Dims, LayerKind, RopeConfig};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::model::Network;
use crate::model::ladder::Dedicated;
use crate::model::universal::archs::llama;
use crate::model::universal::attention::new_rope;
use crate::model::universal::mlp::Mlp;
use crate::model::universal::spec::{Activation, FeedForward, Head, LayerSpec, MlpSpec, Spec};
use crate::nn::{At, Embedding, Linear, RmsNorm, Rope};
use crate::ops::{self, Mask};
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::Weights;

pub(super) const ROW: Dedicated = Dedicated {
    model_type: "llama",
    keys: llama::keys,
    fits: |file| known(file).is_some(),
    check: |file| llama::spec(file).map(drop),
    load: |file, weights, fault| {
        let shape = known(file).ok_or_else(|| file.error("not a MiniCPM5 shape"))?;
        Ok(Box::new(MiniCpm5::load(shape, weights, fault)?))
    },
};

/// The extents of every model this network runs. All of them have untied heads, no biases, no windows
/// and unscaled rotary encoding.
const SHAPES: &[Dims] = &[
    // MiniCPM5-1B: 1 080 632 832 parameters, 679 552 512 of them outside the two tables.
    Dims {
        hidden_size: 1536,
        num_layers: 24,
        intermediate_size: 4608,
        heads: 16,
        kv_heads: 2,
        head_dim: 128,
        vocab_size: 130_560,
        eps: 1e-6,
        max_positions: Some(131_072),
    },
    // Its synthetic twin, goldens/synthetic/llama-minicpm5: a feed-forward block three times as wide
    // as the stream, queries four thirds as wide, eight query heads to one of keys.
    Dims {
        hidden_size: 96,
        num_layers: 3,
        intermediate_size: 288,
        heads: 8,
        kv_heads: 1,
        head_dim: 16,
        vocab_size: 256,
        eps: 1e-6,
        max_positions: Some(131_072),
    },
];

/// The base of the rotary encoding of all [`SHAPES`].
const ROPE_THETA: f64 = 5e6;

fn known(file: &ConfigFile) -> Option<&'static Dims> {
    let spec = llama::spec(file).ok()?;
    SHAPES.iter().find(|shape| has_shape(&spec, shape))
}

/// Whether a llama descriptor says nothing but this shape.
fn has_shape(spec: &Spec, shape: &Dims) -> bool {
    let plain = |layer: &LayerSpec| {
        let attention = &layer.attention;
        let mlp = matches!(layer.feed_forward, FeedForward::Dense(mlp) if !mlp.bias);
        layer.kind == LayerKind::Full
            && !attention.input_bias
            && !attention.output_bias
            && attention.rope.as_ref() == Some(&rope(shape))
            && mlp
    };
    spec.dims == *shape && spec.head == Head::tied_if(false) && spec.layers.iter().all(plain)
}

fn rope(shape: &Dims) -> RopeConfig {
    RopeConfig { max_positions: shape.max_positions, ..RopeConfig::plain(ROPE_THETA) }
}

/// A `MiniCPM5` model.
struct MiniCpm5 {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    lm_head: Linear,
    dims: &'static Dims,
}

struct Layer {
    input_layernorm: RmsNorm,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
    rope: Rope,
    dims: &'static Dims,
    fault: Option<Fault>,
}

impl MiniCpm5 {
    fn load(
        dims: &'static Dims,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        weights.discard(|name| name.contains("self_attn.rotary_emb.inv_freq"));
        let table = [dims.vocab_size, dims.hidden_size];
        Ok(Self {
            embed_tokens: weights.embedding("model.embed_tokens", table)?,
            layers: (0..dims.num_layers)
                .map(|i| Layer::load(dims, weights, i, fault))
                .collect::<Result<_, _>>()?,
            norm: weights.norm("model.norm", dims.hidden_size, dims.eps)?,
            lm_head: weights.linear("lm_head", table, false)?,
            dims,
        })
    }
}

impl Network for MiniCpm5 {
    fn forward(
        &self,
        ids: &Array,
        caches: &mut [KvCache],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let mut h = self.embed_tokens.forward(ids)?;
        sink.tap("embed", &h);
        let mask = caches[0].mask(h.dim(1), None)?;
        for (i, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            sink.enter(Some(i));
            h = layer.forward(&h, &mask, cache, sink)?;
        }
        sink.enter(None);
        let [logits] = sink.segment("head", [&h], |[h], sink| {
            let h = self.norm.forward(h)?;
            sink.tap("norm", &h);
            let logits = self.lm_head.forward(&h)?;
            sink.tap("logits", &logits);
            Ok([logits])
        })?;
        Ok(logits)
    }

    fn has_segments(&self) -> bool {
        true
    }

    fn new_caches(&self) -> Vec<KvCache> {
        self.layers.iter().map(|_| KvCache::Plain(PlainCache::new())).collect()
    }

    fn dims(&self) -> &Dims {
        self.dims
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }
}

impl Layer {
    fn load(
        dims: &'static Dims,
        weights: &mut Weights,
        index: usize,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let place = Place::root(format!("model.layers.{index}"));
        let (hidden, eps) = (dims.hidden_size, dims.eps);
        let (queries, keys) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
        let attention = place.join("self_attn");
        let mut linear =
            |name: &str, shape| weights.linear(attention.join(name).path(), shape, false);
        let q_proj = linear("q_proj", [queries, hidden])?;
        let k_proj = linear("k_proj", [keys, hidden])?;
        let v_proj = linear("v_proj", [keys, hidden])?;
        let o_proj = linear("o_proj", [hidden, queries])?;
        let mut norm = |name: &str| weights.norm(place.join(name).path(), hidden, eps);
        let input_layernorm = norm("input_layernorm")?;
        let post_attention_layernorm = norm("post_attention_layernorm")?;
        let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
        Ok(Self {
            input_layernorm,
            q_proj,
            k_proj,
            v_proj,
            o_proj,
            post_attention_layernorm,
            mlp: Mlp::load(weights, &place.join("mlp"), hidden, &mlp, fault)?,
            rope: new_rope(Some(&rope(dims)), dims.head_dim, fault)?,
            dims,
            fault,
        })
    }

    /// x `[batch, n, hidden]` to the same.
    fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        cache: &mut KvCache,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let inputs = [x, &cache.position_array()];
        let [queries, keys, values] = sink.segment("before", inputs, |[x, at], sink| {
            let normed = self.input_layernorm.forward(x)?;
            sink.tap("input_layernorm", &normed);
            self.heads_of(&normed, at, sink)
        })?;
        let rows = cache.update(&keys, &values)?;
        let scale = (self.dims.head_dim as f64).powf(-0.5) as f32;
        let newest = cache.newest();
        let mixed = fault::attention(self.fault, &queries, &rows, scale, mask, newest)?;
        sink.tap("self_attn.sdpa", &mixed);
        let after =
            |[x, mixed]: [&Array; 2], sink: &mut TapSink| Ok([self.joined(x, mixed, sink)?]);
        let [out] = sink.segment("after", [x, &mixed], after)?;
        Ok(out)
    }

    /// The layer's output, of its input and what attention mixed.
    fn joined(&self, x: &Array, mixed: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let mixed = ops::transpose(mixed, &[0, 2, 1, 3])?;
        let r = self.o_proj.forward(&ops::reshape(&mixed, &[x.dim(0), x.dim(1), -1])?)?;
        sink.tap("self_attn.o", &r);
        let h = ops::add(x, &r)?;
        let normed = self.post_attention_layernorm.forward(&h)?;
        sink.tap("post_attention_layernorm", &normed);
        let out = ops::add(&h, &self.mlp.forward(&normed, sink)?)?;
        sink.tap("out", &out);
        Ok(out)
    }

    /// Queries and keys, rotated, and values, each `[batch, heads, n, head_dim]`.
    fn heads_of(
        &self,
        x: &Array,
        at: &Array,
        sink: &mut TapSink,
    ) -> Result<[Array; 3], EngineError> {
        let (batch, n) = (x.dim(0), x.dim(1));
        let mut heads = |name: &str, linear: &Linear, heads: usize| {
            let y = linear.forward(x)?;
            sink.tap(&format!("self_attn.{name}"), &y);
            let y = ops::reshape(&y, &[batch, n, heads as i32, -1])?;
            ops::transpose(&y, &[0, 2, 1, 3])
        };
        let queries = heads("q", &self.q_proj, self.dims.heads)?;
        let keys = heads("k", &self.k_proj, self.dims.kv_heads)?;
        let values = heads("v", &self.v_proj, self.dims.kv_heads)?;

        let queries = self.rope.forward(&queries, At::Array(at))?;
        let keys = self.rope.forward(&keys, At::Array(at))?;
        sink.tap("self_attn.q_rope", &queries);
        sink.tap("self_attn.k_rope", &keys);
        Ok([queries, keys, values])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::testing::config;

    /// The config of MiniCPM5-1B, as published.
    fn published() -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"], "attention_bias": false,
            "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1536,
            "intermediate_size": 4608, "max_position_embeddings": 131_072, "mlp_bias": false,
            "model_type": "llama", "num_attention_heads": 16, "num_hidden_layers": 24,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_scaling": null,
            "rope_theta": 5_000_000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
            "use_cache": true, "vocab_size": 130_560,
        })
    }

    #[test]
    fn the_published_config_fits() {
        assert_eq!(known(&config(&published())), Some(&SHAPES[0]));
    }

    #[test]
    fn its_parameters_are_as_many_as_published() {
        let dims = &SHAPES[0];
        let width = dims.head_dim * (2 * dims.heads + 2 * dims.kv_heads);
        let layer = dims.hidden_size * (width + 3 * dims.intermediate_size + 2);
        let inner = dims.num_layers * layer + dims.hidden_size;
        assert_eq!(inner, 679_552_512);
        assert_eq!(inner + 2 * dims.vocab_size * dims.hidden_size, 1_080_632_832);
    }

    #[test]
    fn any_other_value_goes_on_down_the_ladder() {
        for (key, value) in [
            ("hidden_size", json!(1552)),
            ("num_hidden_layers", json!(23)),
            ("intermediate_size", json!(4096)),
            ("num_attention_heads", json!(12)),
            ("num_key_value_heads", json!(4)),
            ("head_dim", json!(96)),
            ("vocab_size", json!(130_559)),
            ("rms_norm_eps", json!(1e-5)),
            ("rope_theta", json!(10_000.0)),
            ("rope_traditional", json!(true)),
            ("rope_scaling", json!({"type": "linear", "factor": 2.0})),
            ("max_position_embeddings", json!(65_536)),
            ("tie_word_embeddings", json!(true)),
            ("attention_bias", json!(true)),
            ("mlp_bias", json!(true)),
            ("unknown", json!(1)),
        ] {
            let mut other = published();
            other[key] = value;
            assert_eq!(known(&config(&other)), None, "{key}");
        }
    }
}
