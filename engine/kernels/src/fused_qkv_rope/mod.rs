//! Queries, keys and values of attention in one pass: three packed projections, the norms of queries and keys over
//! each head, and rotary positions.

mod call;
mod host;
mod inputs;
mod metal;
mod reference;

use mlx_parity_tensor::Dtype;

use self::call::Qkv;
use crate::call::{Call, Out};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::gated::DTYPES;
use crate::how::How;
use crate::spec::{Claim, Mutant, Spec, joined, source};

const ID: &str = "fused_qkv_rope";

/// The kernel.
///
/// Operands `x` `[batch, rows, in]` and for each N of `q`, `k`, `v` a packed matrix `N_w`, `N_scales`, `N_biases` of
/// `heads` (`kv_heads`) times `head_dim` rows, packed as the numbers `N_bits` and `N_group` say. Where there are
/// `q_norm` and `k_norm` `[head_dim]`, queries and keys are normed over each head first, with `eps`. The first `dims`
/// values of a head are rotated with the base `theta`: row i stands at `(offset + i) * rope_scale`; `traditional` pairs
/// neighbours, otherwise the two halves. Results are queries `[batch, heads, rows, head_dim]`, and keys and values
/// `[batch, kv_heads, rows, head_dim]`, in the dtype of x.
#[derive(Debug)]
pub struct FusedQkvRope;

static SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Exact,
    baseline: "rope(rms_norm(quantized_matmul(x, q))), the same of k, quantized_matmul(x, v)",
    dtypes: DTYPES,
    backward: None,
    spread: None,
    min_rows: 1,
    sources: &[
        source!("fused_qkv_rope/mod.rs"),
        source!("fused_qkv_rope/call.rs"),
        source!("fused_qkv_rope/host.rs"),
        source!("fused_qkv_rope/reference.rs"),
        source!("fused_qkv_rope/inputs.rs"),
        source!("fused_qkv_rope/metal.rs"),
        source!("fused_qkv_rope/kernel.metal"),
        source!("fused_swiglu/metal.rs"),
        source!("metal/packed.metal"),
        source!("launch.rs"),
        source!("gated.rs"),
        source!("linear.rs"),
        source!("gemm.rs"),
        source!("affine.rs"),
        source!("widen.rs"),
        source!("exact.rs"),
        source!("numbers.rs"),
        source!("parallel.rs"),
        source!("draw.rs"),
    ],
    metal: Some(metal::METAL),
    mutants: &joined::<23>(&[MUTANTS, &metal::MUTANTS]),
};

const MUTANTS: &[Mutant] = &[
    Mutant::both("wrong_head", "each head by the norm and the place of its neighbour"),
    Mutant::both("value_rotated", "values rotated as keys are"),
    Mutant::both("norm_forgotten", "queries and keys not normed"),
    Mutant::both("norm_of_sum", "norms by the sum of squares instead of their mean"),
    Mutant::both("eps_forgotten", "norms without eps"),
    Mutant::both("query_norm_for_keys", "keys with the weight of the queries' norm"),
    Mutant::host("norm_unrounded", "normed values not rounded before the weight"),
    Mutant::both("position_off_by_one", "each row a position too far"),
    Mutant::both("offset_forgotten", "positions from zero in every call"),
    Mutant::both(
        "pairs_interleaved",
        "halves where neighbours pair up, neighbours where halves do",
    ),
    Mutant::both("half_of_head", "partners half a head apart instead of half the rotated values"),
    Mutant::both("rotated_backwards", "the sine's sign flipped"),
    Mutant::host("rotation_unrounded", "products of the rotation not rounded"),
    Mutant::both("rest_not_copied", "values behind the rotated ones left at zero"),
    Mutant::both("batch_continues", "positions that go on from one item of the batch to the next"),
    Mutant::host("strides_ignored", "a view of x read as if it had no gaps"),
    Mutant::host("last_input_dropped", "sums end one input early"),
    Mutant::both("wrong_group", "each group with the scale and bias of its neighbour"),
];

impl Candidate for FusedQkvRope {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Qkv::of(call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Qkv::of(call).map_or("mixed", |of| of.class())
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let of = Qkv::of(call)?;
        let shape = |heads| (of.dtype, vec![of.batch, heads, of.rows, of.head_dim]);
        Ok(of.heads().map(shape).to_vec())
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        host::run(&Qkv::of(call)?, how, out)
    }

    fn flops(&self, call: &Call<'_>) -> f64 {
        Qkv::of(call).map_or(0.0, |of| 2.0 * of.work() as f64)
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        Ok(reference::qkv(&Qkv::of(call)?))
    }

    fn sizes(&self) -> &'static [&'static str] {
        inputs::SIZES
    }

    fn classes(&self) -> &'static [ShapeClass] {
        inputs::CLASSES
    }

    fn trial(&self, _: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
        inputs::trial(sizes, dtype, seed)
    }

    fn probes(&self, class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
        inputs::probes(class, dtype)
    }
}
