//! `mlx_lm/models/qwen3.py`, with nothing to choose from.

use mlx_rs::{Array, Dtype};

use crate::cache::{KvCache, PlainCache};
use crate::config::Dims;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::kernels::sites::{self, QkvRope};
use crate::model::Network;
use crate::model::ladder::Dedicated;
use crate::model::universal::archs::qwen3::{self, Qwen3Config};
use crate::model::universal::attention::new_rope;
use crate::nn::{At, Embedding, Linear, Position, RmsNorm, Rope};
use crate::ops::{self, Mask};
use crate::taps::TapSink;
use crate::weights::Weights;

pub(super) const ROW: Dedicated = Dedicated {
    model_type: "qwen3",
    keys: qwen3::keys,
    fits: |_| true,
    check: |file| qwen3::read(file).map(drop),
    load: |file, weights, fault| Ok(Box::new(Qwen3::load(&qwen3::read(file)?, weights, fault)?)),
};

/// Taps of queries and of keys, normed and rotated.
const QUERY_TAPS: [&str; 2] = ["self_attn.q_norm", "self_attn.q_rope"];
const KEY_TAPS: [&str; 2] = ["self_attn.k_norm", "self_attn.k_rope"];

struct Qwen3 {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    /// None where the embedding is the output projection too.
    lm_head: Option<Linear>,
    dims: Dims,
}

struct Layer {
    input_layernorm: RmsNorm,
    projections: [Linear; 4],
    q_norm: RmsNorm,
    k_norm: RmsNorm,
    rope: Rope,
    post_attention_layernorm: RmsNorm,
    mlp: [Linear; 3],
    heads: [i32; 2],
    head_dim: i32,
    scale: f32,
    fault: Option<Fault>,
}

impl Qwen3 {
    fn load(
        config: &Qwen3Config,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let &Qwen3Config { dims, tied, .. } = config;
        let table = [dims.vocab_size, dims.hidden_size];
        if tied {
            weights.discard(|name| name == "lm_head.weight");
        }
        let embed_tokens = weights.embedding("model.embed_tokens", table)?;
        let lm_head = if tied {
            fault::blank_head(fault, table, embed_tokens.dtype())?
        } else {
            Some(weights.linear("lm_head", table, false)?)
        };
        Ok(Self {
            embed_tokens,
            layers: (0..dims.num_layers)
                .map(|i| {
                    let fault = fault::in_layer(fault, i);
                    Layer::load(config, weights, &format!("model.layers.{i}"), fault)
                })
                .collect::<Result<_, _>>()?,
            norm: weights.norm("model.norm", dims.hidden_size, dims.eps)?,
            lm_head,
            dims,
        })
    }
}

impl Network for Qwen3 {
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
        self.layers.iter().map(|_| KvCache::Plain(PlainCache::new())).collect()
    }

    fn length_limit(&self) -> Option<i32> {
        self.layers.iter().find_map(|layer| layer.rope.length_limit())
    }

    fn stretches_from(&self) -> Option<i32> {
        self.layers.iter().find_map(|layer| layer.rope.stretches_from())
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
        config: &Qwen3Config,
        weights: &mut Weights,
        path: &str,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let (hidden, inner, eps) = (dims.hidden_size, dims.intermediate_size, dims.eps);
        let (queries, keys) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
        let mut linear =
            |name: &str, shape| weights.linear(&format!("{path}.{name}"), shape, false);
        let projections = [
            linear("self_attn.q_proj", [queries, hidden])?,
            linear("self_attn.k_proj", [keys, hidden])?,
            linear("self_attn.v_proj", [keys, hidden])?,
            linear("self_attn.o_proj", [hidden, queries])?,
        ];
        let mlp = [
            linear("mlp.gate_proj", [inner, hidden])?,
            linear("mlp.up_proj", [inner, hidden])?,
            linear("mlp.down_proj", [hidden, inner])?,
        ];
        let mut norm = |name: &str, width, eps| weights.norm(&format!("{path}.{name}"), width, eps);
        let mlp_eps = fault::mlp_norm_eps(fault, eps);
        let mut outer = [
            norm("input_layernorm", hidden, eps)?,
            norm("post_attention_layernorm", hidden, mlp_eps)?,
        ];
        if fault::is(fault, Fault::NormOrder) {
            outer.reverse();
        }
        let [input_layernorm, post_attention_layernorm] = outer;
        Ok(Self {
            input_layernorm,
            projections,
            q_norm: norm("self_attn.q_norm", dims.head_dim, eps)?,
            k_norm: norm("self_attn.k_norm", dims.head_dim, eps)?,
            rope: new_rope(Some(&config.rope), dims.head_dim, fault)?,
            post_attention_layernorm,
            mlp,
            heads: [dims.heads as i32, dims.kv_heads as i32],
            head_dim: dims.head_dim as i32,
            scale: (dims.head_dim as f64).powf(-0.5) as f32,
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
        let at = cache.position();
        let inputs = [x, &cache.position_array()];
        let pure = !self.rope.goes_by_length();
        let [queries, keys, values] =
            sink.segment_where(pure, "before", inputs, |[x, array], sink| {
                let normed = self.input_layernorm.forward(x)?;
                sink.tap("input_layernorm", &normed);
                self.heads_of(&normed, at, array, sink)
            })?;
        let rows = cache.update(&keys, &values)?;
        let newest = cache.newest();
        let mixed = fault::attention(self.fault, &queries, &rows, self.scale, mask, newest)?;
        sink.tap("self_attn.sdpa", &mixed);
        let after =
            |[x, mixed]: [&Array; 2], sink: &mut TapSink| Ok([self.joined(x, mixed, sink)?]);
        let [out] = sink.segment("after", [x, &mixed], after)?;
        Ok(out)
    }

    /// The layer's output, of its input and what attention mixed.
    fn joined(&self, x: &Array, mixed: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let mixed = ops::transpose(mixed, &[0, 2, 1, 3])?;
        let mixed = ops::reshape(&mixed, &[x.dim(0), x.dim(1), -1])?;
        let r = self.projections[3].forward(&mixed)?;
        sink.tap("self_attn.o", &r);
        let h = ops::add(x, &r)?;
        let normed = self.post_attention_layernorm.forward(&h)?;
        sink.tap("post_attention_layernorm", &normed);
        let out = match sites::mlp(&normed, &h, self.mlp.each_ref())? {
            Some(out) => out,
            None => ops::add(&h, &self.feed_forward(&normed, sink)?)?,
        };
        sink.tap("out", &out);
        Ok(out)
    }

    /// Queries, keys and values `[batch, heads, n, head_dim]`, normed and rotated.
    fn heads_of(
        &self,
        x: &Array,
        position: Position,
        array: &Array,
        sink: &mut TapSink,
    ) -> Result<[Array; 3], EngineError> {
        let [q_proj, k_proj, v_proj, _] = &self.projections;
        if sites::qkv_rope_wanted() {
            let of = QkvRope {
                projections: [q_proj, k_proj, v_proj],
                norms: Some([&self.q_norm, &self.k_norm]),
                rope: &self.rope,
                heads: self.heads[0],
                kv_heads: self.heads[1],
                head_dim: self.head_dim,
            };
            if let Some(heads) = sites::qkv_rope(x, position.offset, &of)? {
                return Ok(heads);
            }
        }
        let split = |a: &Array, heads| ops::reshape(a, &[x.dim(0), x.dim(1), heads, -1]);
        let turn = |a: &Array| ops::transpose(a, &[0, 2, 1, 3]);
        let [heads, kv_heads] = self.heads;
        let queries = q_proj.forward(x)?;
        let keys = k_proj.forward(x)?;
        let values = v_proj.forward(x)?;
        sink.tap("self_attn.q", &queries);
        sink.tap("self_attn.k", &keys);
        sink.tap("self_attn.v", &values);

        let at = self.rope.at(position, array);
        let queries = self.placed(&self.q_norm, &split(&queries, heads)?, at, QUERY_TAPS, sink)?;
        let keys = self.placed(&self.k_norm, &split(&keys, kv_heads)?, at, KEY_TAPS, sink)?;
        Ok([queries, keys, turn(&split(&values, kv_heads)?)?])
    }

    /// Heads `[batch, n, heads, head_dim]`, normed and rotated, as `[batch, heads, n, head_dim]`.
    fn placed(
        &self,
        norm: &RmsNorm,
        x: &Array,
        at: At,
        [normed, rotated]: [&str; 2],
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let late = fault::is(self.fault, Fault::QkNormAfterRope);
        let mut x = x.clone();
        if !late {
            x = norm.forward(&x)?;
            sink.tap(normed, &x);
        }
        let x = self.rope.forward(&ops::transpose(&x, &[0, 2, 1, 3])?, at)?;
        sink.tap(rotated, &x);
        if late { norm.forward(&x) } else { Ok(x) }
    }

    fn feed_forward(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let [gate_proj, up_proj, down_proj] = &self.mlp;
        let act = if let Some(act) = sites::swiglu(x, gate_proj, up_proj)? {
            act
        } else {
            let gate = gate_proj.forward(x)?;
            let up = up_proj.forward(x)?;
            sink.tap("mlp.gate", &gate);
            sink.tap("mlp.up", &up);
            let [gate, up] = fault::gate_and_up(self.fault, [&gate, &up]);
            ops::multiply(&ops::silu(gate)?, up)?
        };
        sink.tap("mlp.act", &act);
        let down = fault::down(self.fault, down_proj.forward(&act)?)?;
        sink.tap("mlp.down", &down);
        Ok(down)
    }
}
