//! `silu(gate(x)) · up(x)` of two packed projections, with the bits of the composed ops on MLX's CPU backend.

mod host;
pub(crate) mod inputs;
pub(crate) mod metal;
pub(crate) mod reference;

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Out};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::gated::{self, Gated};
use crate::how::How;
use crate::spec::{Claim, Mutant, Spec, joined, source};

const ID: &str = "fused_swiglu";

/// A mutant of the host source.
pub(crate) const fn mutant(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: true, metal: false }
}

/// The bugs that gated kernels share.
pub(crate) const SHARED_MUTANTS: [Mutant; 9] = [
    Mutant::both("scale_off", "scales 1 % too large"),
    Mutant::both("bias_forgotten", "weights without their groups' biases"),
    Mutant::both("wrong_group", "each group with the scale and bias of its neighbour"),
    mutant("high_bit_lost", "the highest bit of each code masked off"),
    mutant("last_input_dropped", "sums end one input early"),
    Mutant::both("tail_skipped", "outputs beyond the last whole tile not written"),
    mutant("stale_row", "the last row of a partial block repeats the one before"),
    mutant("strides_ignored", "a view of x read as if it had no gaps"),
    Mutant::both("gate_up_swapped", "the activation on the wrong projection"),
];

/// The kernel.
#[derive(Debug)]
pub(crate) struct FusedSwiglu;

static SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Exact,
    baseline: "multiply(silu(quantized_matmul(x, gate)), quantized_matmul(x, up))",
    dtypes: gated::DTYPES,
    backward: None,
    spread: None,
    min_rows: 1,
    sources: &[
        source!("fused_swiglu/mod.rs"),
        source!("fused_swiglu/host.rs"),
        source!("fused_swiglu/reference.rs"),
        source!("fused_swiglu/inputs.rs"),
        source!("fused_swiglu/metal.rs"),
        source!("fused_swiglu/kernel.metal"),
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
    mutants: &joined::<22>(&[
        &SHARED_MUTANTS,
        &[
            mutant("float_accumulator", "products and sums stay in float32"),
            mutant("weight_rounded_once", "weights rounded once, after the sum with the bias"),
            mutant("silu_unrounded", "silu not rounded before the product"),
        ],
        &metal::MUTANTS,
    ]),
};

impl Candidate for FusedSwiglu {
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
        host::run(&of, how, gated::result(ID, (of.dtype, &of.shape()), out)?)
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
