//! Gated gelu of two projections: `gelu_approx(gate) * up`, in one pass.

pub(crate) mod host;
pub(crate) mod inputs;
pub(crate) mod metal;
pub(crate) mod reference;

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Out, View};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::how::How;
use crate::spec::{Claim, Mutant, Spec, source};

const ID: &str = "fused_geglu";

/// Dtypes of activations.
pub(crate) const DTYPES: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::Bf16];

/// The kernel.
///
/// Operands `gate` and `up` `[.., width]` of one shape and dtype, any strides; the result has that shape and
/// dtype. Each step is rounded as the composed ops round it (`nn.gelu_approx` of MLX, then a product).
#[derive(Debug)]
pub struct FusedGeglu;

const SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Exact,
    baseline: "multiply(gelu_approx(gate), up)",
    dtypes: DTYPES,
    backward: Some("fused_geglu_vjp"),
    spread: None,
    min_rows: 1,
    sources: &[
        source!("fused_geglu/mod.rs"),
        source!("fused_geglu/host.rs"),
        source!("fused_geglu/inputs.rs"),
        source!("fused_geglu/reference.rs"),
        source!("draw.rs"),
        source!("fused_geglu/metal.rs"),
        source!("fused_geglu/kernel.metal"),
        source!("launch.rs"),
        source!("exact.rs"),
        source!("numbers.rs"),
        source!("parallel.rs"),
        source!("rows.rs"),
    ],
    metal: Some(metal::METAL),
    mutants: MUTANTS,
};

const MUTANTS: &[Mutant] = &[
    Mutant::host("erf_gelu", "gelu by the error function instead of its approximation"),
    Mutant::both("sigmoid_gelu", "gelu by the sigmoid of 1.702 x"),
    Mutant::both("slope_off", "sqrt(2 / pi) 1 % too large"),
    Mutant::both("cube_forgotten", "tanh of the linear term alone"),
    Mutant::both("half_forgotten", "twice the activation"),
    Mutant::both("operands_swapped", "gelu of up, times the gate"),
    Mutant::host("step_unrounded", "the activation rounded once instead of at each step"),
    Mutant::both("needless_rounding", "the activation rounded to bfloat16"),
    Mutant::both("tail_skipped", "elements behind the last whole block left as they were"),
    Mutant::host("stale_tail", "elements behind the last whole block taken from the block before"),
    Mutant::host("strides_ignored", "rows with gaps read as if there were none"),
    Mutant::metal("square_for_cube", "tanh of the square where the cube belongs"),
    Mutant::metal("tanh_linear", "tanh as what is between -1 and 1 of its argument"),
    Mutant::metal("up_forgotten", "the activation alone"),
    Mutant::metal("tail_unmasked", "elements that there are not, computed"),
    Mutant::metal(
        "blocks_overlap",
        "each group begins where the first block of the one before ends",
    ),
];

/// The operands of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'a> {
    /// What goes through gelu.
    pub gate: View<'a>,
    /// What it multiplies.
    pub up: View<'a>,
}

impl<'a> Pair<'a> {
    /// The operands `gate` and `up`.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] where they are missing or differ in shape or dtype,
    /// [`KernelError::Unsupported`] for other dtypes.
    pub(crate) fn of(kernel: &'static str, call: &Call<'a>) -> Result<Self, KernelError> {
        let gate = call.operand(kernel, "gate")?;
        let dtype = gate.data.dtype();
        if !DTYPES.contains(&dtype) {
            return Err(KernelError::Unsupported {
                kernel,
                found: format!("a gate of {dtype}"),
                wanted: "float32, float16 or bfloat16".into(),
            });
        }
        Ok(Self { gate, up: like(kernel, call, "up", gate)? })
    }

    /// Rows: all but the last axis.
    pub(crate) fn rows(&self) -> usize {
        self.gate.shape.iter().rev().skip(1).product()
    }
}

/// An operand of the shape and dtype of another.
pub(crate) fn like<'a>(
    kernel: &'static str,
    call: &Call<'a>,
    name: &str,
    other: View<'_>,
) -> Result<View<'a>, KernelError> {
    let view = call.operand(kernel, name)?;
    if view.shape != other.shape || view.data.dtype() != other.data.dtype() {
        let what = format!(
            "`{name}` is {} {:?}, the gate {} {:?}",
            view.data.dtype(),
            view.shape,
            other.data.dtype(),
            other.shape
        );
        return Err(KernelError::Malformed { kernel, what });
    }
    Ok(view)
}

impl Candidate for FusedGeglu {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Pair::of(ID, call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Pair::of(ID, call).map_or("", |pair| inputs::class(pair.rows()))
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let Pair { gate, .. } = Pair::of(ID, call)?;
        Ok(vec![(gate.data.dtype(), gate.shape.to_vec())])
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        host::run(ID, Pair::of(ID, call)?, how, out)
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        Ok(vec![reference::geglu(Pair::of(ID, call)?)])
    }

    fn sizes(&self) -> &'static [&'static str] {
        inputs::SIZES
    }

    fn classes(&self) -> &'static [ShapeClass] {
        inputs::CLASSES
    }

    fn trial(&self, class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
        inputs::trial(class, sizes, dtype, seed, &["gate", "up"])
    }

    fn probes(&self, class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
        inputs::probes(class, dtype, &["gate", "up"])
    }
}
