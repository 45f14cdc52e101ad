//! Grouped-query attention on a cache.

use mlx_rs::{Array, Dtype};

use super::kernel::attend;
use super::norm::HeadNorm;
use super::spec::{AttentionSpec, Inputs, Kernel, QkNorm, QkPlace};
use crate::cache::KvCache;
use crate::config::{Dims, RopeConfig};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::kernels::sites::{self, QkvRope};
use crate::nn::{At, Linear, Position, Rope};
use crate::ops::{self, Mask, SliceAxis};
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::Weights;

/// The block of an [`AttentionSpec`].
pub(super) struct Attention {
    place: Place,
    inputs: Inputs,
    /// The projections in, in the order of [`Inputs`].
    projections: Vec<Linear>,
    output: (&'static str, Linear),
    qk_norm: Option<(QkNorm, [HeadNorm; 2])>,
    rope: Rope,
    heads: i32,
    kv_heads: i32,
    head_dim: i32,
    scale: f64,
    kernel: Kernel,
    fault: Option<Fault>,
}

/// What attention needs besides the stream.
pub(super) struct Context<'a> {
    pub(super) mask: &'a Mask,
    /// `[n, 1]`, where queries are scaled by position.
    pub(super) query_scale: Option<&'a Array>,
    pub(super) cache: &'a mut KvCache,
}

impl Attention {
    /// The block within a layer.
    pub(super) fn load(
        weights: &mut Weights,
        layer: &Place,
        spec: &AttentionSpec,
        dims: &Dims,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let place = layer.join(spec.path);
        let (queries, keys) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
        let hidden = dims.hidden_size;
        let mut input = |name: &str, rows| {
            weights.linear(place.join(name).path(), [rows, hidden], spec.input_bias)
        };
        let projections = match spec.inputs {
            Inputs::Separate([q, k, v]) => {
                vec![input(q, queries)?, input(k, keys)?, input(v, keys)?]
            }
            Inputs::Fused(all) | Inputs::FusedByHead(all) => vec![input(all, queries + 2 * keys)?],
        };
        let output = place.join(spec.output);
        let output = weights.linear(output.path(), [hidden, queries], spec.output_bias)?;
        let qk_norm = spec.qk_norm.map(|norm| qk_norms(weights, &place, norm, dims, fault));
        Ok(Self {
            inputs: spec.inputs,
            projections,
            output: (spec.output, output),
            qk_norm: qk_norm.transpose()?,
            rope: new_rope(spec.rope.as_ref(), dims.head_dim, fault)?,
            heads: dims.heads as i32,
            kv_heads: dims.kv_heads as i32,
            head_dim: dims.head_dim as i32,
            scale: spec.scale,
            kernel: spec.kernel,
            place,
            fault,
        })
    }

    /// Whether it reads packed keys and values beside queries of a dtype.
    pub(super) fn reads_packed(&self, dtype: Dtype) -> bool {
        self.kernel.takes_packed(dtype)
    }

    /// The longest sequence that is rotated as short ones are ([`Rope::length_limit`]).
    pub(super) fn length_limit(&self) -> Option<i32> {
        self.rope.length_limit()
    }

    /// [`Rope::stretches_from`] of this layer.
    pub(super) fn stretches_from(&self) -> Option<i32> {
        self.rope.stretches_from()
    }

    /// Whether [`Attention::turned_heads`] is a pure function of arrays.
    pub(super) fn is_pure(&self) -> bool {
        !self.rope.goes_by_length()
    }

    /// Queries and keys with their positions, and values, of x `[batch, n, hidden]`, each
    /// `[batch, heads, n, head_dim]`; `array` has the number of `position`.
    pub(super) fn turned_heads(
        &self,
        x: &Array,
        position: Position,
        array: &Array,
        sink: &mut TapSink,
    ) -> Result<[Array; 3], EngineError> {
        if let Some(heads) = self.fused_heads(x, position.offset)? {
            return Ok(heads);
        }
        let at = self.rope.at(position, array);
        let [queries, keys, values] = self.heads_of(x, sink)?;
        let queries = self.turned(0, &queries, at, sink)?;
        let keys = self.turned(1, &keys, at, sink)?;
        Ok([queries, keys, values])
    }

    /// [`Attention::turned_heads`] by one kernel.
    fn fused_heads(&self, x: &Array, offset: i32) -> Result<Option<[Array; 3]>, EngineError> {
        if !sites::qkv_rope_wanted() {
            return Ok(None);
        }
        if !matches!(self.inputs, Inputs::Separate(_)) {
            return sites::no_qkv_rope("one projection of all three");
        }
        let norms = match &self.qk_norm {
            None => None,
            Some((spec, [q, k])) => {
                let by_head =
                    matches!(spec.place, QkPlace::BeforeTranspose | QkPlace::AfterTranspose);
                let (Some(q), Some(k), true) = (q.rms(), k.rms(), by_head) else {
                    return sites::no_qkv_rope("other norms");
                };
                Some([q, k])
            }
        };
        let projections = [&self.projections[0], &self.projections[1], &self.projections[2]];
        let of = QkvRope {
            projections,
            norms,
            rope: &self.rope,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
        };
        sites::qkv_rope(x, offset, &of)
    }

    /// What queries find in the cache, which takes the keys and values first: `[batch, heads, n, head_dim]`.
    pub(super) fn mix(
        &self,
        [queries, keys, values]: [Array; 3],
        Context { cache, mask, query_scale }: Context,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let queries = match query_scale {
            Some(scale) => ops::multiply(&queries, scale)?,
            None => queries,
        };
        let rows = cache.update(&keys, &values)?;
        let newest = cache.newest();
        let mixed = attend(self.kernel, &queries, &rows, self.scale, mask, newest, self.fault)?;
        sink.tap_in(&self.place, "sdpa", &mixed);
        Ok(mixed)
    }

    /// What [`Attention::mix`] gives through the output projection, `[batch, n, hidden]`.
    pub(super) fn output(&self, mixed: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let (batch, n) = (mixed.dim(0), mixed.dim(2));
        let mixed = ops::transpose(mixed, &[0, 2, 1, 3])?;
        let (name, output) = &self.output;
        let out = output.forward(&ops::reshape(&mixed, &[batch, n, -1])?)?;
        sink.tap_module(&self.place, name, &out);
        Ok(out)
    }

    /// Queries, keys and values `[batch, heads, n, head_dim]`, normed where that comes before rope.
    fn heads_of(&self, x: &Array, sink: &mut TapSink) -> Result<[Array; 3], EngineError> {
        let turn = |a: &Array| ops::transpose(a, &[0, 2, 1, 3]);
        if let Inputs::FusedByHead(name) = self.inputs {
            let all = self.projections[0].forward(x)?;
            sink.tap_module(&self.place, name, &all);
            let all = ops::reshape(&all, &[x.dim(0), x.dim(1), self.heads, 3 * self.head_dim])?;
            let part = |i: i32| turn(&last(&all, [i * self.head_dim, (i + 1) * self.head_dim])?);
            return Ok([part(0)?, part(1)?, part(2)?]);
        }
        let [queries, keys, values] = self.projected(x, sink)?;
        let split = |a: &Array, heads| ops::reshape(a, &[a.dim(0), a.dim(1), heads, -1]);
        let queries = self.normed(QkPlace::Width, 0, queries, sink)?;
        let keys = self.normed(QkPlace::Width, 1, keys, sink)?;
        let queries = split(&queries, self.heads)?;
        let keys = split(&keys, self.kv_heads)?;
        let values = turn(&split(&values, self.kv_heads)?)?;
        let queries = turn(&self.normed(QkPlace::BeforeTranspose, 0, queries, sink)?)?;
        let keys = turn(&self.normed(QkPlace::BeforeTranspose, 1, keys, sink)?)?;
        let queries = self.normed(QkPlace::AfterTranspose, 0, queries, sink)?;
        let keys = self.normed(QkPlace::AfterTranspose, 1, keys, sink)?;
        Ok([queries, keys, values])
    }

    /// Queries, keys and values as they come out of their projections, `[batch, n, width]`.
    fn projected(&self, x: &Array, sink: &mut TapSink) -> Result<[Array; 3], EngineError> {
        let first = self.projections[0].forward(x)?;
        match self.inputs {
            Inputs::Separate([q, k, v]) => {
                let keys = self.projections[1].forward(x)?;
                let values = self.projections[2].forward(x)?;
                sink.tap_module(&self.place, q, &first);
                sink.tap_module(&self.place, k, &keys);
                sink.tap_module(&self.place, v, &values);
                Ok([first, keys, values])
            }
            Inputs::Fused(all) | Inputs::FusedByHead(all) => {
                sink.tap_module(&self.place, all, &first);
                let [queries, keys] = [self.heads, self.kv_heads].map(|n| n * self.head_dim);
                Ok([
                    last(&first, [0, queries])?,
                    last(&first, [queries, queries + keys])?,
                    last(&first, [queries + keys, queries + 2 * keys])?,
                ])
            }
        }
    }

    /// Queries (0) or keys (1), normed if the reference norms them at this place.
    fn normed(
        &self,
        place: QkPlace,
        which: usize,
        x: Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        match &self.qk_norm {
            Some((spec, norms)) if spec.place == place => {
                let x = norms[which].forward(&x)?;
                sink.tap_module(&self.place, spec.names[which], &x);
                Ok(x)
            }
            _ => Ok(x),
        }
    }

    /// Queries (0) or keys (1) with their positions, normed where that comes after.
    fn turned(
        &self,
        which: usize,
        x: &Array,
        at: At,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let x = self.rope.forward(x, at)?;
        if self.rope.turns() {
            sink.tap_in(&self.place, ["q_rope", "k_rope"][which], &x);
        }
        self.normed(QkPlace::AfterRope, which, x, sink)
    }
}

/// Columns from the first to before the second, a view.
fn last(x: &Array, [start, stop]: [i32; 2]) -> Result<Array, EngineError> {
    ops::slice_last(x, SliceAxis::range(start, stop))
}

/// A layer's position encoding; none where it has no positions.
pub(in crate::model) fn new_rope(
    config: Option<&RopeConfig>,
    head_dim: usize,
    fault: Option<Fault>,
) -> Result<Rope, EngineError> {
    let Some(config) = config else { return Ok(Rope::none()) };
    let base = fault::rope_base(fault, config.base);
    Rope::new(&RopeConfig { base, ..config.clone() }, config.rotated(head_dim))
}

/// The norms of queries and keys; under a fault, for after rope.
fn qk_norms(
    weights: &mut Weights,
    place: &Place,
    mut spec: QkNorm,
    dims: &Dims,
    fault: Option<Fault>,
) -> Result<(QkNorm, [HeadNorm; 2]), EngineError> {
    let heads = [dims.heads, dims.kv_heads];
    let mut norm = |i: usize| {
        HeadNorm::load(weights, &place.join(spec.names[i]), &spec, heads[i], dims, fault)
    };
    let norms = [norm(0)?, norm(1)?];
    let by_head = matches!(spec.place, QkPlace::BeforeTranspose | QkPlace::AfterTranspose);
    if by_head && fault::is(fault, Fault::QkNormAfterRope) {
        spec.place = QkPlace::AfterRope;
    }
    Ok((spec, norms))
}
