//! Gradients of gated gelu: of `gelu_approx(gate) * up` by the gate and by up, in one pass.

mod host;
mod metal;

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Out, View};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::fused_geglu::{DTYPES, Pair, inputs, like, reference};
use crate::how::How;
use crate::spec::{Claim, Mutant, Spec, source};

const ID: &str = "fused_geglu_vjp";
const NAMES: &[&str] = &["gate", "up", "cotangent"];

/// The kernel.
///
/// Operands `gate`, `up` and `cotangent` `[.., width]` of one shape and dtype, any strides; results `dgate` and
/// `dup` of that shape and dtype, each computed in float64.
#[derive(Debug)]
pub struct FusedGegluVjp;

const SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Envelope,
    baseline: "vjp of multiply(gelu_approx(gate), up)",
    dtypes: DTYPES,
    backward: None,
    spread: None,
    min_rows: 1,
    sources: &[
        source!("fused_geglu_vjp/mod.rs"),
        source!("fused_geglu_vjp/host.rs"),
        source!("fused_geglu_vjp/metal.rs"),
        source!("fused_geglu_vjp/kernel.metal"),
        source!("fused_geglu/metal.rs"),
        source!("launch.rs"),
        source!("fused_geglu/mod.rs"),
        source!("fused_geglu/reference.rs"),
        source!("fused_geglu/inputs.rs"),
        source!("draw.rs"),
        source!("numbers.rs"),
        source!("parallel.rs"),
        source!("rows.rs"),
    ],
    metal: Some(metal::METAL),
    mutants: MUTANTS,
};

const MUTANTS: &[Mutant] = &[
    Mutant::both("cotangent_forgotten", "gradients of the sum, whatever the cotangent"),
    Mutant::both("up_forgotten", "the gate's gradient without the factor up"),
    Mutant::both("three_forgotten", "the cube's derivative without its factor 3"),
    Mutant::both("cube_forgotten", "the derivative of the linear term alone"),
    Mutant::both("tangent_not_squared", "1 - tanh instead of 1 - tanh^2"),
    Mutant::both("curve_forgotten", "the product rule without its second term"),
    Mutant::both("half_forgotten", "twice the gradient of up"),
    Mutant::both("dup_of_derivative", "up's gradient by gelu's derivative instead of gelu"),
    Mutant::both("results_swapped", "each gradient in the place of the other"),
    Mutant::both("needless_rounding", "gelu rounded to bfloat16 on the way"),
    Mutant::both("tail_skipped", "elements behind the last whole block left as they were"),
    Mutant::host(
        "stale_tail",
        "elements behind the last whole block computed from the block before",
    ),
    Mutant::host("strides_ignored", "rows with gaps read as if there were none"),
    Mutant::metal("tail_unmasked", "elements that there are not, computed"),
];

/// The operands of a call.
#[derive(Debug, Clone, Copy)]
struct Operands<'a> {
    pair: Pair<'a>,
    cotangent: View<'a>,
}

impl<'a> Operands<'a> {
    fn of(call: &Call<'a>) -> Result<Self, KernelError> {
        let pair = Pair::of(ID, call)?;
        Ok(Self { pair, cotangent: like(ID, call, "cotangent", pair.gate)? })
    }
}

impl Candidate for FusedGegluVjp {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Operands::of(call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Pair::of(ID, call).map_or("", |pair| inputs::class(pair.rows()))
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let gate = Operands::of(call)?.pair.gate;
        Ok(vec![(gate.data.dtype(), gate.shape.to_vec()); 2])
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        host::run(Operands::of(call)?, how, out)
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        let Operands { pair, cotangent } = Operands::of(call)?;
        let (gate, up, cotangent) = (pair.gate.to_f64(), pair.up.to_f64(), cotangent.to_f64());
        let slopes = gate.iter().map(|&gate| reference::slope_of_gelu(gate));
        let dgate = slopes.zip(&up).zip(&cotangent).map(|((slope, up), ct)| ct * up * slope);
        let dup = gate.iter().zip(&cotangent).map(|(&gate, ct)| ct * reference::gelu(gate));
        Ok(vec![dgate.collect(), dup.collect()])
    }

    fn sizes(&self) -> &'static [&'static str] {
        inputs::SIZES
    }

    fn classes(&self) -> &'static [ShapeClass] {
        inputs::CLASSES
    }

    fn trial(&self, class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
        inputs::trial(class, sizes, dtype, seed, NAMES)
    }

    fn probes(&self, class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
        inputs::probes(class, dtype, NAMES)
    }
}
