//! Attention on keys and values of the layer's own, or of an earlier layer.

use mlx_rs::Array;

use crate::cache::{KvCache, Rows};
use crate::config::{Dims, Gemma4Layer, KeyValues};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::model::parts::{join, split, turn};
use crate::model::universal::attention::new_rope;
use crate::nn::{At, Linear, Position, RmsNorm, Rope};
use crate::ops::{self, Mask};
use crate::taps::TapSink;
use crate::weights::Weights;

/// The keys and values of one model call.
pub(super) struct CallState<'a> {
    /// One a layer that has keys and values of its own.
    caches: &'a mut [KvCache],
    /// What the layers so far attended to, in the order of their caches.
    kept: Vec<Kept>,
}

/// All that a layer attended to, the position of the call's first token, as an array too, and the
/// column of the newest key.
struct Kept {
    rows: Rows,
    at: Position,
    array: Array,
    newest: i32,
}

impl<'a> CallState<'a> {
    /// The state before the first layer.
    pub(super) fn new(caches: &'a mut [KvCache]) -> Self {
        Self { kept: Vec::with_capacity(caches.len()), caches }
    }
}

pub(super) struct Attention {
    q_proj: Linear,
    q_norm: RmsNorm,
    /// None where the layer reads the keys and values of an earlier one.
    key_values: Option<Projections>,
    /// The cache whose keys and values it attends to.
    place: usize,
    o_proj: Linear,
    rope: Rope,
    heads: i32,
    fault: Option<Fault>,
}

impl Attention {
    /// The block at a module path, on the cache at `place`.
    pub(super) fn load(
        dims: &Dims,
        spec: &Gemma4Layer,
        place: usize,
        path: &str,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let (hidden, queries) = (dims.hidden_size, dims.heads * spec.head_dim);
        Ok(Self {
            q_proj: weights.linear(&format!("{path}.q_proj"), [queries, hidden], false)?,
            q_norm: weights.norm(&format!("{path}.q_norm"), spec.head_dim, dims.eps)?,
            key_values: Projections::load(dims, spec, path, weights)?,
            place,
            o_proj: weights.linear(&format!("{path}.o_proj"), [hidden, queries], false)?,
            rope: new_rope(Some(&spec.rope), spec.head_dim, fault)?,
            heads: dims.heads as i32,
            fault,
        })
    }

    /// The longest sequence under the short factors of `longrope`.
    pub(super) fn length_limit(&self) -> Option<i32> {
        self.rope.length_limit()
    }

    /// [`Rope::stretches_from`] of this layer.
    pub(super) fn stretches_from(&self) -> Option<i32> {
        self.rope.stretches_from()
    }

    /// What the queries of x `[batch, n, hidden]`, normed first, find in the layer's cache, which takes
    /// the new keys and values in, or in the rows an earlier layer kept: `[batch, heads, n, head_dim]`.
    pub(super) fn mix(
        &self,
        norm: impl Fn(&Array, &mut TapSink) -> Result<Array, EngineError>,
        x: &Array,
        mask: &Mask,
        state: &mut CallState,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let pure = !self.rope.goes_by_length();
        let Some(projections) = &self.key_values else {
            let kept = &state.kept[self.place];
            let at = kept.at;
            let [queries] =
                sink.segment_where(pure, "before", [x, &kept.array], |[x, array], sink| {
                    let queries = self.queries(&norm(x, sink)?, sink)?;
                    Ok([self.turned(&queries, at, array, sink)?])
                })?;
            return self.attend(&queries, &kept.rows.clone().borrowed(), mask, kept.newest, sink);
        };
        let cache = &mut state.caches[self.place];
        let (at, array) = (cache.position(), cache.position_array());
        let [queries, keys, values] =
            sink.segment_where(pure, "before", [x, &array], |[x, array], sink| {
                let x = norm(x, sink)?;
                let queries = self.queries(&x, sink)?;
                let turn = self.rope.at(at, array);
                let [keys, values] = projections.forward(&x, &self.rope, turn, sink)?;
                Ok([self.turned(&queries, at, array, sink)?, keys, values])
            })?;
        let rows = cache.update(&keys, &values)?;
        let newest = cache.newest();
        let mixed = self.attend(&queries, &rows, mask, newest, sink);
        state.kept.push(Kept { rows, at, array, newest });
        mixed
    }

    fn attend(
        &self,
        queries: &Array,
        rows: &Rows,
        mask: &Mask,
        newest: i32,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let mixed = fault::attention(self.fault, queries, rows, 1.0, mask, newest)?;
        sink.tap("self_attn.sdpa", &mixed);
        Ok(mixed)
    }

    /// Normed queries `[batch, n, heads, head_dim]`.
    fn queries(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let queries = self.q_proj.forward(x)?;
        sink.tap("self_attn.q", &queries);
        let queries = self.q_norm.forward(&split(&queries, self.heads)?)?;
        sink.tap("self_attn.q_norm", &queries);
        Ok(queries)
    }

    /// Queries with their positions, `[batch, heads, n, head_dim]`.
    fn turned(
        &self,
        queries: &Array,
        position: Position,
        array: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let queries = self.rope.forward(&turn(queries)?, self.rope.at(position, array))?;
        sink.tap("self_attn.q_rope", &queries);
        Ok(queries)
    }

    /// What [`Attention::mix`] gives through the output projection, `[batch, n, hidden]`.
    pub(super) fn output(&self, mixed: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let out = self.o_proj.forward(&join(mixed)?)?;
        sink.tap("self_attn.o", &out);
        Ok(out)
    }
}

/// The modules of a layer with keys and values of its own.
struct Projections {
    k_proj: Linear,
    /// None where values are the keys before norm and rope.
    v_proj: Option<Linear>,
    k_norm: RmsNorm,
    /// Of the norm of values, which has no weight.
    eps: f32,
    heads: i32,
}

impl Projections {
    fn load(
        dims: &Dims,
        spec: &Gemma4Layer,
        path: &str,
        weights: &mut Weights,
    ) -> Result<Option<Self>, EngineError> {
        let shape = [spec.kv_heads * spec.head_dim, dims.hidden_size];
        let mut linear = |name: &str| weights.linear(&format!("{path}.{name}"), shape, false);
        let (k_proj, v_proj) = match spec.key_values {
            KeyValues::Own => (linear("k_proj")?, Some(linear("v_proj")?)),
            KeyValues::OwnKeysOnly => (linear("k_proj")?, None),
            KeyValues::Shared(_) => return Ok(None),
        };
        Ok(Some(Self {
            k_proj,
            v_proj,
            k_norm: weights.norm(&format!("{path}.k_norm"), spec.head_dim, dims.eps)?,
            eps: dims.eps as f32,
            heads: spec.kv_heads as i32,
        }))
    }

    /// Keys and values `[batch, heads, n, head_dim]` of new positions, normed, the keys rotated.
    fn forward(
        &self,
        x: &Array,
        rope: &Rope,
        at: At,
        sink: &mut TapSink,
    ) -> Result<[Array; 2], EngineError> {
        let keys = self.k_proj.forward(x)?;
        sink.tap("self_attn.k", &keys);
        let keys = split(&keys, self.heads)?;
        let values = match &self.v_proj {
            Some(v_proj) => {
                let values = v_proj.forward(x)?;
                sink.tap("self_attn.v", &values);
                split(&values, self.heads)?
            }
            None => keys.clone(),
        };
        let keys = self.k_norm.forward(&keys)?;
        sink.tap("self_attn.k_norm", &keys);
        let keys = rope.forward(&turn(&keys)?, at)?;
        sink.tap("self_attn.k_rope", &keys);
        let values = ops::rms_norm(&values, None, self.eps)?;
        sink.tap("self_attn.v_norm", &values);
        Ok([keys, turn(&values)?])
    }
}
