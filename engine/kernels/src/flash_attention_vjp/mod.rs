//! The gradients of [`FlashAttention`](crate::FlashAttention), without its scores.

mod host;
mod inputs;
pub(crate) mod metal;
mod reference;

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Out, View};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::flash_attention::{Attention, SIZES};
use crate::how::How;
use crate::spec::{Claim, Mutant, Source, Spec, source};

const ID: &str = "flash_attention_vjp";

/// The kernel.
///
/// Operands of the forward, its results `out` `[batch, heads, L, d]` and `lse` f32 `[batch, heads, L]`, and `cotangent`
/// like `out`; its numbers. Results: the gradients by queries, keys and values, in their shapes and dtype.
///
/// Weights are made again from scores and `lse` (Dao et al., "`FlashAttention`", 2022, algorithm 4), in float32; each
/// gradient is rounded once.
#[derive(Debug)]
pub struct FlashAttentionVjp;

const SOURCES: &[Source] = &[
    source!("flash_attention_vjp/mod.rs"),
    source!("flash_attention_vjp/host.rs"),
    source!("flash_attention_vjp/inputs.rs"),
    source!("flash_attention_vjp/reference.rs"),
    source!("flash_attention_vjp/metal.rs"),
    source!("flash_attention_vjp/kernel.metal"),
    source!("flash_attention/mod.rs"),
    source!("flash_attention/host.rs"),
    source!("flash_attention/inputs.rs"),
    source!("flash_attention/reference.rs"),
    source!("flash_attention/metal.rs"),
    source!("flash_attention/header.metal"),
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
    baseline: "vjp of fast.scaled_dot_product_attention(queries, keys, values)",
    dtypes: &[Dtype::F32, Dtype::F16, Dtype::Bf16],
    backward: None,
    spread: None,
    min_rows: 2,
    sources: SOURCES,
    metal: Some(metal::METAL),
    mutants: MUTANTS,
};

const fn both(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: true, metal: true }
}

const MUTANTS: &[Mutant] = &[
    both("dk_transposed", "the gradient by keys takes a tile of scores for its transpose"),
    both("delta_forgotten", "the sum of cotangent times result is not taken from dP"),
    both("scale_forgotten", "gradients by queries and keys lack the scale"),
    both("scale_off", "weights are made again from scores 1 % too large"),
    both("wrong_kv_head", "heads of queries are dealt out to those of keys in turn"),
    both("first_head_only", "keys and values get the gradient of the first head of their group"),
    both("window_off_by_one", "the window is one key too wide"),
    both("causal_top_left", "with more keys than queries, the first query sees the first key only"),
    both("last_key_dropped", "the newest key gets and gives no gradient"),
    both("first_key_dropped", "the oldest key gets and gives no gradient"),
    both("stale_tile", "a tile meets what was staged for the one before"),
    both("chunk_dropped", "queries behind the last whole block are skipped"),
    both("max_not_subtracted", "weights are exponentials of scores as they are"),
    Mutant {
        name: "no_barrier",
        what: "a tile is read before it is whole",
        host: false,
        metal: true,
    },
];

/// A call that is well formed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backward<'a> {
    pub(crate) forward: Attention<'a>,
    pub(crate) out: View<'a>,
    pub(crate) lse: View<'a>,
    pub(crate) cotangent: View<'a>,
}

impl<'a> Backward<'a> {
    /// # Errors
    /// [`KernelError::Malformed`] and [`KernelError::Unsupported`], as the forward.
    pub(crate) fn of(call: &Call<'a>) -> Result<Self, KernelError> {
        let of = Self {
            forward: Attention::of(ID, call)?,
            out: call.operand(ID, "out")?,
            lse: call.operand(ID, "lse")?,
            cotangent: call.operand(ID, "cotangent")?,
        };
        let queries = of.forward.queries;
        let like = |view: &View<'_>| {
            let dense = view.strides.last() == Some(&1) || queries.shape[3] == 1;
            view.shape == queries.shape && view.data.dtype() == queries.data.dtype() && dense
        };
        let sums = of.lse.shape == &queries.shape[..3] && of.lse.data.dtype() == Dtype::F32;
        if like(&of.out) && like(&of.cotangent) && sums {
            return Ok(of);
        }
        let what = "`out` and `cotangent` are like the queries, `lse` is f32 [batch, heads, L]";
        Err(KernelError::Malformed { kernel: ID, what: what.to_owned() })
    }
}

impl Candidate for FlashAttentionVjp {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Backward::of(call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Backward::of(call).map_or("", |of| of.forward.class())
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let Attention { queries, keys, values, .. } = Backward::of(call)?.forward;
        let like = |view: View<'_>| (view.data.dtype(), view.shape.to_vec());
        Ok(vec![like(queries), like(keys), like(values)])
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        host::run(ID, &Backward::of(call)?, how, out)
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        Ok(reference::gradients(&Backward::of(call)?))
    }

    fn sizes(&self) -> &'static [&'static str] {
        SIZES
    }

    fn classes(&self) -> &'static [ShapeClass] {
        inputs::CLASSES
    }

    fn trial(&self, class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
        inputs::trial(class, sizes, dtype, seed)
    }

    fn probes(&self, class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
        inputs::probes(class, dtype)
    }

    fn flops(&self, call: &Call<'_>) -> f64 {
        Backward::of(call).map_or(0.0, |of| 2.0 * 5.0 * of.forward.work() as f64)
    }
}
