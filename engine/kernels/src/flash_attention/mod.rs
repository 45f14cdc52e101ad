//! Attention that never holds its scores: tiles of keys, a running maximum and sum (online softmax).

mod host;
mod inputs;
pub(crate) mod metal;
mod reference;

pub(crate) use host::{panels_of_columns, panels_of_rows, widened};
pub(crate) use inputs::{CLASSES, SIZES, copied_probe, views};
pub(crate) use reference::{Scores, attend};

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Out, View};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::how::How;
use crate::spec::{Claim, Mutant, Source, Spec, source};

const ID: &str = "flash_attention";

/// The widest head.
const WIDEST: usize = 256;

/// The kernel.
///
/// Operands `queries` `[batch, heads, L, d]`, `keys` and `values` `[batch, kv_heads, S, d]` of one dtype, the last axis
/// without gaps, other strides any. Numbers `scale`, `causal` (0 or 1; the last query sees all keys), `window` (0, or how
/// many keys up to its own a query sees) and `want_lse`. Results: `[batch, heads, L, d]` in the dtype of the queries, and
/// with `want_lse` the logarithm of each query's sum of exponentials, f32 `[batch, heads, L]`.
///
/// The algorithm is that of Dao et al., "`FlashAttention`" (2022), in float32; results are rounded once.
#[derive(Debug)]
pub struct FlashAttention;

const SOURCES: &[Source] = &[
    source!("flash_attention/mod.rs"),
    source!("flash_attention/host.rs"),
    source!("flash_attention/inputs.rs"),
    source!("flash_attention/reference.rs"),
    source!("flash_attention/metal.rs"),
    source!("flash_attention/header.metal"),
    source!("flash_attention/kernel.metal"),
    source!("draw.rs"),
    source!("gemm.rs"),
    source!("launch.rs"),
    source!("numbers.rs"),
    source!("numbers/exp.rs"),
    source!("parallel.rs"),
    source!("widen.rs"),
];

const SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Envelope,
    baseline: "fast.scaled_dot_product_attention(queries, keys, values)",
    dtypes: &[Dtype::F32, Dtype::F16, Dtype::Bf16],
    backward: Some("flash_attention_vjp"),
    spread: None,
    min_rows: 2,
    sources: SOURCES,
    metal: Some(metal::METAL),
    mutants: MUTANTS,
};

const fn both(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: true, metal: true }
}

const fn metal(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: false, metal: true }
}

const MUTANTS: &[Mutant] = &[
    both("last_key_dropped", "the newest key is not attended to"),
    both("first_key_dropped", "the oldest key is not attended to"),
    both("window_off_by_one", "the window is one key too wide"),
    both("causal_top_left", "with more keys than queries, the first query sees the first key only"),
    both("max_not_subtracted", "exponentials of scores as they are"),
    both("rescale_forgotten", "the mixture keeps the scale of an earlier maximum"),
    both("scale_off", "scores 1 % too large"),
    both("wrong_kv_head", "heads of queries are dealt out to those of keys in turn"),
    both("tail_unmasked", "keys behind the last one count"),
    both("chunk_dropped", "a tile of keys is skipped"),
    both("stale_tile", "a tile mixes the values of the one before"),
    both("lse_without_max", "the logarithm leaves the maximum out"),
    Mutant {
        name: "accumulator_bf16",
        what: "the mixture is rounded to bfloat16 behind each tile",
        host: true,
        metal: false,
    },
    metal("half_weights", "weights are rounded to half before they mix"),
    metal("no_barrier", "a tile is read before it is whole"),
];

/// A call that is well formed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) queries: View<'a>,
    pub(crate) keys: View<'a>,
    pub(crate) values: View<'a>,
    pub(crate) scale: f32,
    pub(crate) causal: bool,
    /// Keys up to its own that a query sees; all of them where it is 0.
    pub(crate) window: usize,
    pub(crate) want_lse: bool,
}

impl<'a> Attention<'a> {
    /// The call's operands and numbers.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] for shapes that do not fit together, [`KernelError::Unsupported`] for what the kernel
    /// is not made for.
    pub(crate) fn of(kernel: &'static str, call: &Call<'a>) -> Result<Self, KernelError> {
        let [queries, keys, values] = [
            call.operand(kernel, "queries")?,
            call.operand(kernel, "keys")?,
            call.operand(kernel, "values")?,
        ];
        let flag = |name: &str| call.params.get(name).is_some_and(|value| value != 0.0);
        let of = Self {
            queries,
            keys,
            values,
            scale: call.param(kernel, "scale")? as f32,
            causal: flag("causal"),
            window: call.params.get("window").unwrap_or(0.0) as usize,
            want_lse: flag("want_lse"),
        };
        of.well_formed(kernel)?;
        of.taken(kernel)?;
        Ok(of)
    }

    fn well_formed(&self, kernel: &'static str) -> Result<(), KernelError> {
        let malformed = |what: &str| Err(KernelError::Malformed { kernel, what: what.to_owned() });
        let [queries, keys, values] = [self.queries, self.keys, self.values];
        let (&[batch, heads, _, d], &[of, kv_heads, _, width]) = (queries.shape, keys.shape) else {
            return malformed("queries and keys have four axes");
        };
        if values.shape != keys.shape || (of, width) != (batch, d) {
            return malformed("keys and values have one shape, of the queries' batch and width");
        }
        if kv_heads == 0 || heads % kv_heads != 0 {
            return malformed("the heads of queries are a multiple of those of keys");
        }
        let dtype = queries.data.dtype();
        if keys.data.dtype() != dtype || values.data.dtype() != dtype {
            return malformed("queries, keys and values have one dtype");
        }
        Ok(())
    }

    fn taken(&self, kernel: &'static str) -> Result<(), KernelError> {
        let refuse = |found: String, wanted: &str| {
            Err(KernelError::Unsupported { kernel, found, wanted: wanted.to_owned() })
        };
        let dtype = self.queries.data.dtype();
        if !SPEC.dtypes.contains(&dtype) {
            return refuse(dtype.to_string(), "float32, float16 or bfloat16");
        }
        let (count, seen, d) = (self.count(), self.seen(), self.width());
        if d == 0 || d > WIDEST || seen == 0 {
            return refuse(
                format!("heads of {d}, {seen} keys"),
                "heads up to 256, one key or more",
            );
        }
        if self.causal && count > seen {
            return refuse(format!("{count} queries on {seen} keys"), "no more queries than keys");
        }
        if self.window > 0 && !self.causal {
            return refuse("a window without causality".to_owned(), "both or no window");
        }
        let gaps = [self.queries, self.keys, self.values].iter().any(|of| of.strides[3] != 1);
        if gaps && d > 1 {
            return refuse("gaps in the last axis".to_owned(), "none there");
        }
        Ok(())
    }

    pub(crate) fn batch(&self) -> usize {
        self.queries.shape[0]
    }

    pub(crate) fn heads(&self) -> usize {
        self.queries.shape[1]
    }

    pub(crate) fn kv_heads(&self) -> usize {
        self.keys.shape[1]
    }

    /// Queries of a head.
    pub(crate) fn count(&self) -> usize {
        self.queries.shape[2]
    }

    /// Keys of a head.
    pub(crate) fn seen(&self) -> usize {
        self.keys.shape[2]
    }

    /// Values of a head.
    pub(crate) fn width(&self) -> usize {
        self.queries.shape[3]
    }

    /// The keys that a query sees.
    pub(crate) fn visible(&self, query: usize) -> std::ops::Range<usize> {
        if !self.causal {
            return 0..self.seen();
        }
        let end = query + 1 + self.seen() - self.count();
        let start = if self.window == 0 { 0 } else { end.saturating_sub(self.window) };
        start..end
    }

    /// Multiply-adds of one product over all scores.
    pub(crate) fn work(&self) -> usize {
        let scores: usize = (0..self.count()).map(|query| self.visible(query).len()).sum();
        self.batch() * self.heads() * scores * self.width()
    }

    /// The class of the call.
    pub(crate) fn class(&self) -> &'static str {
        match (self.causal, self.window) {
            (false, _) => "full",
            (true, 0) => "causal",
            (true, _) => "window",
        }
    }
}

impl Candidate for FlashAttention {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Attention::of(ID, call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Attention::of(ID, call).map_or("", |of| of.class())
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let of = Attention::of(ID, call)?;
        let mut results = vec![(of.queries.data.dtype(), of.queries.shape.to_vec())];
        if of.want_lse {
            results.push((Dtype::F32, of.queries.shape[..3].to_vec()));
        }
        Ok(results)
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        host::run(ID, &Attention::of(ID, call)?, how, out)
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        let of = Attention::of(ID, call)?;
        let Scores { out, lse, .. } = attend(&of);
        Ok(if of.want_lse { vec![out, lse] } else { vec![out] })
    }

    fn sizes(&self) -> &'static [&'static str] {
        SIZES
    }

    fn classes(&self) -> &'static [ShapeClass] {
        CLASSES
    }

    fn trial(&self, class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
        inputs::trial(class, sizes, dtype, seed)
    }

    fn probes(&self, class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
        inputs::probes(class, dtype)
    }

    fn flops(&self, call: &Call<'_>) -> f64 {
        Attention::of(ID, call).map_or(0.0, |of| 2.0 * 2.0 * of.work() as f64)
    }
}
