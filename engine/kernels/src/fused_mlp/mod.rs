//! A gated MLP and what it is added to: `residual + down(silu(gate(x)) · up(x))`, in float32, rounded once.

mod host;
mod inputs;
mod metal;
mod operands;
mod reference;

use mlx_parity_tensor::Dtype;

use self::operands::Mlp;
use crate::call::{Call, Out};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::fused_swiglu::{SHARED_MUTANTS, mutant};
use crate::gated;
use crate::how::How;
use crate::spec::{Claim, Mutant, Spec, Spread, joined, source};

const ID: &str = "fused_mlp";

/// The kernel.
#[derive(Debug)]
pub(crate) struct FusedMlp;

static SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Envelope,
    baseline: "residual + quantized_matmul(silu(quantized_matmul(x, gate)) * quantized_matmul(x, up), down)",
    dtypes: gated::DTYPES,
    backward: None,
    spread: Some(Spread { backend: "metal", ulp: 8, why: "atomic additions in whatever order" }),
    min_rows: 1,
    sources: &[
        source!("fused_mlp/mod.rs"),
        source!("fused_mlp/host.rs"),
        source!("fused_mlp/operands.rs"),
        source!("fused_mlp/reference.rs"),
        source!("fused_mlp/inputs.rs"),
        source!("fused_mlp/metal.rs"),
        source!("fused_mlp/kernel.metal"),
        source!("fused_swiglu/metal.rs"),
        source!("metal/packed.metal"),
        source!("launch.rs"),
        source!("fused_swiglu/reference.rs"),
        source!("fused_swiglu_f32/host.rs"),
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
    mutants: &joined::<23>(&[
        &SHARED_MUTANTS,
        &[
            mutant("half_accumulator", "weights, products and sums rounded to bfloat16"),
            Mutant::both("hidden_rounded", "the hidden activations rounded to bfloat16"),
            Mutant::both("residual_twice", "the residual added twice"),
            Mutant::both("residual_forgotten", "the residual not added"),
        ],
        &metal::MUTANTS,
    ]),
};

impl Candidate for FusedMlp {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Mlp::of(ID, call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Mlp::of(ID, call).map_or("mixed", |of| of.class())
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let of = Mlp::of(ID, call)?;
        Ok(vec![(of.gated.dtype, of.shape())])
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        let of = Mlp::of(ID, call)?;
        let to = gated::result(ID, (of.gated.dtype, &of.shape()), out)?;
        to.store(&host::mlp(&of, how)?);
        Ok(())
    }

    fn flops(&self, call: &Call<'_>) -> f64 {
        Mlp::of(ID, call).map_or(0.0, |of| 2.0 * (of.gated.work() + of.work()) as f64)
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        Ok(vec![reference::mlp(&Mlp::of(ID, call)?)])
    }

    fn sizes(&self) -> &'static [&'static str] {
        operands::SIZES
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
