//! Attention on keys and values of the layer's own, or of an earlier layer.

use mlx_rs::Array;

use crate::cache::{KvCache, Rows};
use crate::config::{Dims, Gemma4Layer, KeyValues};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::model::parts::{join, split, turn};
use crate::model::universal::attention::new_rope;
use crate::nn::{Linear, Position, RmsNorm, Rope};
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

/// All that a layer attended to, the position of the call's first token, and the column of the newest
/// key.
struct Kept {
    rows: Rows,
    at: Position,
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

    /// x `[batch, n, hidden]` to the same.
    pub(super) fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        state: &mut CallState,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let queries = self.q_proj.forward(x)?;
        sink.tap("self_attn.q", &queries);
        let queries = self.q_norm.forward(&split(&queries, self.heads)?)?;
        sink.tap("self_attn.q_norm", &queries);
        if let Some(projections) = &self.key_values {
            let cache = &mut state.caches[self.place];
            state.kept.push(projections.forward(x, &self.rope, cache, sink)?);
        }
        let kept = &state.kept[self.place];
        let queries = self.rope.forward(&turn(&queries)?, kept.at)?;
        sink.tap("self_attn.q_rope", &queries);

        let borrowed = self.key_values.is_none().then(|| kept.rows.clone().borrowed());
        let rows = borrowed.as_ref().unwrap_or(&kept.rows);
        let mixed = fault::attention(self.fault, &queries, rows, 1.0, mask, kept.newest)?;
        sink.tap("self_attn.sdpa", &mixed);
        let out = self.o_proj.forward(&join(&mixed)?)?;
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

    /// Takes the new positions into the cache, and returns all that may be attended to.
    fn forward(
        &self,
        x: &Array,
        rope: &Rope,
        cache: &mut KvCache,
        sink: &mut TapSink,
    ) -> Result<Kept, EngineError> {
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
        let at = cache.position();
        let keys = self.k_norm.forward(&keys)?;
        sink.tap("self_attn.k_norm", &keys);
        let keys = rope.forward(&turn(&keys)?, at)?;
        sink.tap("self_attn.k_rope", &keys);
        let values = ops::rms_norm(&values, None, self.eps)?;
        sink.tap("self_attn.v_norm", &values);
        let rows = cache.update(&keys, &turn(&values)?)?;
        Ok(Kept { rows, at, newest: cache.newest() })
    }
}
