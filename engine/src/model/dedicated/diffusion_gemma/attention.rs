//! Attention that reads a prompt causally, or a canvas in both directions behind what was read.

use mlx_rs::Array;

use super::config::DiffusionGemmaConfig;
use super::rope::Rope;
use crate::cache::{KvCache, Rows};
use crate::config::LayerKind;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::nn::{Linear, RmsNorm};
use crate::ops::{self, Mask};
use crate::taps::TapSink;
use crate::weights::Weights;

/// What the new positions attend to besides themselves.
pub(super) enum Before<'a> {
    /// What the cache holds; the new positions are taken in (`decoder=False`).
    Read(&'a mut KvCache),
    /// What was read, left as it is (`decoder=True`).
    Canvas(&'a Prefix),
}

/// What one layer shows a canvas of the positions before it.
pub(super) struct Prefix {
    /// Keys and values, `[1, kv_heads, n, head_dim]`; none where nothing was read.
    pub(super) rows: Option<(Array, Array)>,
    /// Over these rows and the canvas.
    pub(super) mask: Mask,
    /// The position of the canvas's first token.
    pub(super) offset: i32,
}

/// The attention block of one layer.
pub(super) struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    /// None in full layers: there the keys before their norm are the values.
    v_proj: Option<Linear>,
    o_proj: Linear,
    q_norm: RmsNorm,
    k_norm: RmsNorm,
    rope: Rope,
    eps: f32,
    heads: i32,
    kv_heads: i32,
    head_dim: i32,
    fault: Option<Fault>,
}

impl Attention {
    pub(super) fn load(
        config: &DiffusionGemmaConfig,
        weights: &mut Weights,
        path: &str,
        kind: LayerKind,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let (dims, of) = (&config.dims, config.heads(kind));
        let (hidden, queries) = (dims.hidden_size, dims.heads * of.head_dim);
        let keys = of.kv_heads * of.head_dim;
        let bias = config.attention_bias;
        let mut linear = |name, shape| weights.linear(&format!("{path}.{name}"), shape, bias);
        let sliding = kind == LayerKind::Sliding;
        Ok(Self {
            q_proj: linear("q_proj", [queries, hidden])?,
            k_proj: linear("k_proj", [keys, hidden])?,
            v_proj: sliding.then(|| linear("v_proj", [keys, hidden])).transpose()?,
            o_proj: linear("o_proj", [hidden, queries])?,
            q_norm: weights.norm(&format!("{path}.q_norm"), of.head_dim, dims.eps)?,
            k_norm: weights.norm(&format!("{path}.k_norm"), of.head_dim, dims.eps)?,
            rope: Rope::new(config.rope(kind), of.head_dim, fault)?,
            eps: dims.eps as f32,
            heads: dims.heads as i32,
            kv_heads: of.kv_heads as i32,
            head_dim: of.head_dim as i32,
            fault,
        })
    }

    /// x `[1, n, hidden]` to the same; `mask` is for reading, a canvas brings its own.
    pub(super) fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        before: &mut Before,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let offset = match before {
            Before::Read(cache) => cache.offset(),
            Before::Canvas(prefix) => prefix.offset,
        };
        let [queries, keys, values] = self.heads_of(x, offset, sink)?;
        let (rows, mask) = match before {
            Before::Read(cache) => (cache.update(&keys, &values)?, mask),
            Before::Canvas(Prefix { rows: None, mask, .. }) => (Rows::Plain { keys, values }, mask),
            Before::Canvas(Prefix { rows: Some(rows), mask, .. }) => {
                let keys = ops::concatenate(&[&rows.0, &keys], 2)?;
                let values = ops::concatenate(&[&rows.1, &values], 2)?;
                (Rows::Plain { keys, values }, mask)
            }
        };
        let newest = rows.positions() - 1;
        let mixed = fault::attention(self.fault, &queries, &rows, 1.0, mask, newest)?;
        sink.tap("self_attn.sdpa", &mixed);
        let mixed = ops::transpose(&mixed, &[0, 2, 1, 3])?;
        let out = self.o_proj.forward(&ops::reshape(&mixed, &[x.dim(0), x.dim(1), -1])?)?;
        sink.tap("self_attn.o", &out);
        Ok(out)
    }

    /// Queries, keys and values `[1, heads, n, head_dim]`, normed, the first two turned.
    fn heads_of(
        &self,
        x: &Array,
        offset: i32,
        sink: &mut TapSink,
    ) -> Result<[Array; 3], EngineError> {
        let split = |a: &Array, heads| ops::reshape(a, &[a.dim(0), a.dim(1), heads, self.head_dim]);
        let turn = |a: &Array| ops::transpose(a, &[0, 2, 1, 3]);
        let queries = self.q_proj.forward(x)?;
        sink.tap("self_attn.q", &queries);
        let queries = self.q_norm.forward(&split(&queries, self.heads)?)?;
        sink.tap("self_attn.q_norm", &queries);
        let queries = self.rope.forward(&turn(&queries)?, offset)?;
        sink.tap("self_attn.q_rope", &queries);

        let keys = self.k_proj.forward(x)?;
        sink.tap("self_attn.k", &keys);
        let keys = split(&keys, self.kv_heads)?;
        let values = match &self.v_proj {
            Some(v_proj) => {
                let values = v_proj.forward(x)?;
                sink.tap("self_attn.v", &values);
                split(&values, self.kv_heads)?
            }
            None => keys.clone(),
        };
        let keys = self.k_norm.forward(&keys)?;
        sink.tap("self_attn.k_norm", &keys);
        let keys = self.rope.forward(&turn(&keys)?, offset)?;
        sink.tap("self_attn.k_rope", &keys);
        let values = ops::rms_norm(&values, None, self.eps)?;
        sink.tap("self_attn.v_norm", &values);
        Ok([queries, keys, turn(&values)?])
    }
}
