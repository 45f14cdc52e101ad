//! `Qwen3NextAttention` of `mlx_lm/models/qwen3_next.py`: attention whose output passes a gate that
//! the query projection makes.

use mlx_rs::Array;

use crate::cache::KvCache;
use crate::config::Qwen35Config;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::model::universal::attention::new_rope;
use crate::nn::{Linear, Position, RmsNorm, Rope};
use crate::ops::{self, Mask, SliceAxis};
use crate::taps::TapSink;
use crate::weights::Weights;

/// The mixing block of a full-attention layer.
pub(super) struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    q_norm: RmsNorm,
    k_norm: RmsNorm,
    rope: Rope,
    heads: i32,
    kv_heads: i32,
    scale: f32,
    fault: Option<Fault>,
}

impl Attention {
    /// The block at a module path, with the norm that the checkpoint's layout asks for.
    pub(super) fn load(
        config: &Qwen35Config,
        weights: &mut Weights,
        path: &str,
        norm: super::LoadNorm,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let (queries, keys) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
        let hidden = dims.hidden_size;
        let mut linear = |name: &str, outputs, inputs| {
            weights.linear(&format!("{path}.{name}"), [outputs, inputs], config.attention_bias)
        };
        Ok(Self {
            q_proj: linear("q_proj", 2 * queries, hidden)?,
            k_proj: linear("k_proj", keys, hidden)?,
            v_proj: linear("v_proj", keys, hidden)?,
            o_proj: linear("o_proj", hidden, queries)?,
            q_norm: norm(weights, &format!("{path}.q_norm"), dims.head_dim, dims.eps)?,
            k_norm: norm(weights, &format!("{path}.k_norm"), dims.head_dim, dims.eps)?,
            rope: new_rope(Some(&config.rope), dims.head_dim, fault)?,
            heads: dims.heads as i32,
            kv_heads: dims.kv_heads as i32,
            scale: (dims.head_dim as f64).powf(-0.5) as f32,
            fault,
        })
    }

    /// [`Rope::stretches_from`] of this layer.
    pub(super) fn stretches_from(&self) -> Option<i32> {
        self.rope.stretches_from()
    }

    /// Whether [`Attention::turned_heads`] is a pure function of arrays.
    pub(super) fn is_pure(&self) -> bool {
        !self.rope.goes_by_length()
    }

    /// Rotated queries and keys, values, and the gate, as [`Attention::heads_of`]; `array` has the number
    /// of `position`.
    pub(super) fn turned_heads(
        &self,
        x: &Array,
        position: Position,
        array: &Array,
        sink: &mut TapSink,
    ) -> Result<[Array; 4], EngineError> {
        let [queries, keys, values, gate] = self.heads_of(x, sink)?;
        let at = self.rope.at(position, array);
        let queries = self.rope.forward(&queries, at)?;
        let keys = self.rope.forward(&keys, at)?;
        sink.tap("self_attn.q_rope", &queries);
        sink.tap("self_attn.k_rope", &keys);
        Ok([queries, keys, values, gate])
    }

    /// What queries find in the cache, which takes the keys and values first: `[batch, heads, n, head_dim]`.
    pub(super) fn mix(
        &self,
        [queries, keys, values]: [&Array; 3],
        mask: &Mask,
        cache: &mut KvCache,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let rows = cache.update(keys, values)?;
        let newest = cache.newest();
        let mixed = fault::attention(self.fault, queries, &rows, self.scale, mask, newest)?;
        sink.tap("self_attn.sdpa", &mixed);
        Ok(mixed)
    }

    /// What [`Attention::mix`] gives through the gate and the output projection, `[batch, n, hidden]`.
    pub(super) fn output(
        &self,
        mixed: &Array,
        gate: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let (batch, n) = (mixed.dim(0), mixed.dim(2));
        let mixed = ops::transpose(mixed, &[0, 2, 1, 3])?;
        let mixed = ops::reshape(&mixed, &[batch, n, -1])?;
        let mixed = ops::multiply(&mixed, &ops::sigmoid(gate)?)?;
        let out = self.o_proj.forward(&mixed)?;
        sink.tap("self_attn.o", &out);
        Ok(out)
    }

    /// Normed queries and keys, values, each `[batch, heads, n, head_dim]`, and the gate
    /// `[batch, n, heads * head_dim]`. The projection holds each head's queries before its gate.
    fn heads_of(&self, x: &Array, sink: &mut TapSink) -> Result<[Array; 4], EngineError> {
        let (batch, n) = (x.dim(0), x.dim(1));
        let projected = self.q_proj.forward(x)?;
        sink.tap("self_attn.q", &projected);
        let projected = ops::reshape(&projected, &[batch, n, self.heads, -1])?;
        let width = projected.dim(3) / 2;
        let half = |start: i32| {
            let [batch, n] = [SliceAxis::full(batch), SliceAxis::full(n)];
            let range = SliceAxis::range(start, start + width);
            ops::slice(&projected, &[batch, n, SliceAxis::full(self.heads), range])
        };
        let gate = ops::reshape(&half(width)?, &[batch, n, -1])?;
        let (keys, values) = (self.k_proj.forward(x)?, self.v_proj.forward(x)?);
        sink.tap("self_attn.k", &keys);
        sink.tap("self_attn.v", &values);

        let split = |a: &Array| ops::reshape(a, &[batch, n, self.kv_heads, -1]);
        let turn = |a: &Array| ops::transpose(a, &[0, 2, 1, 3]);
        let queries = self.q_norm.forward(&half(0)?)?;
        let keys = self.k_norm.forward(&split(&keys)?)?;
        sink.tap("self_attn.q_norm", &queries);
        sink.tap("self_attn.k_norm", &keys);
        Ok([turn(&queries)?, turn(&keys)?, turn(&split(&values)?)?, gate])
    }
}
