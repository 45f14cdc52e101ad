//! Grouped-query attention on a cache.

use mlx_rs::Array;

use crate::cache::KvCache;
use crate::config::{Dims, RopeConfig};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::nn::{Linear, RmsNorm, Rope};
use crate::ops::{self, Mask};
use crate::taps::TapSink;
use crate::weights::Weights;

/// The attention block of one layer.
pub(super) struct Attention {
    pub(super) q_proj: Linear,
    pub(super) k_proj: Linear,
    pub(super) v_proj: Linear,
    pub(super) o_proj: Linear,
    pub(super) head_norms: HeadNorms,
    pub(super) rope: Rope,
    pub(super) heads: i32,
    pub(super) kv_heads: i32,
    pub(super) scale: f32,
    pub(super) fault: Option<Fault>,
}

/// Norms of the query and key heads, and where the reference applies them. Both places give the same
/// values; they differ in the memory layout that later ops see.
pub(super) enum HeadNorms {
    None,
    /// On `[1, n, heads, head_dim]` (qwen3).
    BeforeTranspose(RmsNorm, RmsNorm),
    /// On `[1, heads, n, head_dim]` (`gemma3_text`).
    AfterTranspose(RmsNorm, RmsNorm),
}

/// The four projections of the block at a module path: q, k, v, o.
pub(super) fn projections(
    weights: &mut Weights,
    path: &str,
    dims: &Dims,
    bias: bool,
) -> Result<[Linear; 4], EngineError> {
    let (queries, keys) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
    let hidden = dims.hidden_size;
    Ok([
        weights.linear(&format!("{path}.q_proj"), [queries, hidden], bias)?,
        weights.linear(&format!("{path}.k_proj"), [keys, hidden], bias)?,
        weights.linear(&format!("{path}.v_proj"), [keys, hidden], bias)?,
        weights.linear(&format!("{path}.o_proj"), [hidden, queries], bias)?,
    ])
}

/// A layer's position encoding.
pub(super) fn rope(
    config: &RopeConfig,
    head_dim: usize,
    fault: Option<Fault>,
) -> Result<Rope, EngineError> {
    let base = fault::rope_base(fault, config.base);
    Rope::new(&RopeConfig { base, ..config.clone() }, config.rotated(head_dim))
}

impl Attention {
    /// x `[1, n, hidden]` to the same.
    pub(super) fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        cache: &mut KvCache,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let [queries, keys, values] = self.heads_of(x, sink)?;
        let queries = self.rope.forward(&queries, cache.position())?;
        let keys = self.rope.forward(&keys, cache.position())?;
        sink.tap("self_attn.q_rope", &queries);
        sink.tap("self_attn.k_rope", &keys);

        let (keys, values) = cache.update(&keys, &values)?;
        let qkv = [&queries, &keys, &values];
        let mixed = fault::attention(self.fault, qkv, self.scale, mask, cache.newest())?;
        sink.tap("self_attn.sdpa", &mixed);

        let mixed = ops::transpose(&mixed, &[0, 2, 1, 3])?;
        let out = self.o_proj.forward(&ops::reshape(&mixed, &[x.dim(0), x.dim(1), -1])?)?;
        sink.tap("self_attn.o", &out);
        Ok(out)
    }

    /// Queries, keys and values, split into heads and, where the architecture does, normed.
    fn heads_of(&self, x: &Array, sink: &mut TapSink) -> Result<[Array; 3], EngineError> {
        let queries = self.q_proj.forward(x)?;
        let keys = self.k_proj.forward(x)?;
        let values = self.v_proj.forward(x)?;
        sink.tap("self_attn.q", &queries);
        sink.tap("self_attn.k", &keys);
        sink.tap("self_attn.v", &values);

        let split = |a: &Array, heads| ops::reshape(a, &[a.dim(0), a.dim(1), heads, -1]);
        let turn = |a: &Array| ops::transpose(a, &[0, 2, 1, 3]);
        let queries = split(&queries, self.heads)?;
        let keys = split(&keys, self.kv_heads)?;
        let values = turn(&split(&values, self.kv_heads)?)?;
        let (queries, keys) = match &self.head_norms {
            HeadNorms::None => (turn(&queries)?, turn(&keys)?),
            HeadNorms::BeforeTranspose(q_norm, k_norm) => {
                let (queries, keys) = (q_norm.forward(&queries)?, k_norm.forward(&keys)?);
                sink.tap("self_attn.q_norm", &queries);
                sink.tap("self_attn.k_norm", &keys);
                (turn(&queries)?, turn(&keys)?)
            }
            HeadNorms::AfterTranspose(q_norm, k_norm) => {
                let queries = q_norm.forward(&turn(&queries)?)?;
                let keys = k_norm.forward(&turn(&keys)?)?;
                sink.tap("self_attn.q_norm", &queries);
                sink.tap("self_attn.k_norm", &keys);
                (queries, keys)
            }
        };
        Ok([queries, keys, values])
    }
}
