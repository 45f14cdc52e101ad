//! `silu(gate(x)) · up(x)` of two packed projections in float32, rounded once.

pub(crate) mod host;
mod metal;

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Out};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::fused_swiglu::metal::MUTANTS;
use crate::fused_swiglu::{SHARED_MUTANTS, inputs, mutant, reference};
use crate::gated::{self, Gated};
use crate::how::How;
use crate::spec::{Claim, Spec, joined, source};

const ID: &str = "fused_swiglu_f32";

/// The kernel.
#[derive(Debug)]
pub(crate) struct FusedSwigluF32;

static SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Envelope,
    baseline: "multiply(silu(quantized_matmul(x, gate)), quantized_matmul(x, up))",
    dtypes: gated::DTYPES,
    backward: None,
    spread: None,
    min_rows: 1,
    sources: &[
        source!("fused_swiglu_f32/mod.rs"),
        source!("fused_swiglu_f32/host.rs"),
        source!("fused_swiglu/reference.rs"),
        source!("fused_swiglu/inputs.rs"),
        source!("fused_swiglu/metal.rs"),
        source!("fused_swiglu/kernel.metal"),
        source!("fused_swiglu_f32/metal.rs"),
        source!("metal/packed.metal"),
        source!("launch.rs"),
        source!("gated.rs"),
        source!("linear.rs"),
        source!("dot.rs"),
        source!("gemm.rs"),
        source!("affine.rs"),
        source!("widen.rs"),
        source!("exact.rs"),
        source!("numbers.rs"),
        source!("parallel.rs"),
        source!("draw.rs"),
    ],
    metal: Some(metal::METAL),
    mutants: &joined::<20>(&[
        &SHARED_MUTANTS,
        &[mutant("half_accumulator", "weights, products and sums rounded to bfloat16")],
        &MUTANTS,
    ]),
};

impl Candidate for FusedSwigluF32 {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Gated::of(ID, call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Gated::of(ID, call).map_or("mixed", |of| of.class())
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let of = Gated::of(ID, call)?;
        Ok(vec![(of.dtype, of.shape())])
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        let of = Gated::of(ID, call)?;
        let to = gated::result(ID, (of.dtype, &of.shape()), out)?;
        to.store(&host::swiglu(ID, &of, how)?);
        Ok(())
    }

    fn flops(&self, call: &Call<'_>) -> f64 {
        Gated::of(ID, call).map_or(0.0, |of| 2.0 * of.work() as f64)
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        Ok(vec![reference::swiglu(&Gated::of(ID, call)?)])
    }

    fn sizes(&self) -> &'static [&'static str] {
        gated::SIZES
    }

    fn classes(&self) -> &'static [ShapeClass] {
        inputs::CLASSES
    }

    fn trial(&self, _: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
        inputs::seeded(sizes, dtype, seed)
    }

    fn probes(&self, class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
        inputs::probes(class, dtype)
    }
}
