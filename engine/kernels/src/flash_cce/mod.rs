//! The loss of a language model's head without its logits: classes in chunks, each met by all positions.

pub(crate) mod call;
mod host;
pub(crate) mod inputs;
pub(crate) mod metal;
pub(crate) mod reference;

use mlx_parity_tensor::Dtype;

use self::call::Head;
use crate::call::{Call, Out};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::gated::DTYPES;
use crate::how::How;
use crate::spec::{Claim, Mutant, Spec, source};

const ID: &str = "flash_cce";

/// The kernel: cross entropy in nats of `hidden · weightᵀ`, as Wijmans et al., "Cut Your Losses" (2024), compute it.
///
/// Operands `hidden` `[positions, in]`; `weight` `[classes, in]`, or `weight_w`, `weight_scales` and `weight_biases`
/// packed as the numbers `bits` and `group` say; `targets` i32 `[positions]`, each a class or -100, whose loss is 0.
/// Results: losses and logsumexps, f32 `[positions]`.
#[derive(Debug)]
pub struct FlashCce;

static SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Envelope,
    baseline: "cross_entropy(matmul(hidden, weight^T), targets), or of quantized_matmul",
    dtypes: DTYPES,
    backward: Some("flash_cce_vjp"),
    spread: None,
    min_rows: 1,
    sources: &[
        source!("flash_cce/mod.rs"),
        source!("flash_cce/call.rs"),
        source!("flash_cce/host.rs"),
        source!("flash_cce/reference.rs"),
        source!("flash_cce/inputs.rs"),
        source!("flash_cce/metal.rs"),
        source!("flash_cce/header.metal"),
        source!("flash_cce/kernel.metal"),
        source!("launch.rs"),
        source!("gemm.rs"),
        source!("affine.rs"),
        source!("widen.rs"),
        source!("numbers.rs"),
        source!("numbers/exp.rs"),
        source!("parallel.rs"),
        source!("draw.rs"),
    ],
    metal: Some(metal::METAL),
    mutants: &[
        Mutant::both("ignored_counted", "positions without a target have a loss"),
        Mutant::both("max_not_subtracted", "exponentials of logits as they are"),
        Mutant::both("rescale_forgotten", "sums kept as they are when the maximum grows"),
        Mutant::both("chunk_dropped", "the last chunk of classes left out"),
        Mutant::both("tail_unmasked", "columns behind the last class counted as classes"),
        Mutant::both("last_class_dropped", "the last class left out of the sum"),
        Mutant::both("first_class_dropped", "the first class left out of the sum"),
        Mutant::both("target_off_by_one", "the logit of the class behind the target"),
        Mutant::both("stale_tile", "the last tile holds the logits of the one before"),
        Mutant::both("wrong_group", "each group with the scale and bias of its neighbour"),
        Mutant::both("bias_forgotten", "weights without their groups' biases"),
        Mutant::both("lse_without_max", "logarithms of sums without the maximum"),
        host("needless_rounding", "logits rounded to bfloat16"),
        Mutant::metal("depth_tail_dropped", "the last slice of columns left out of the logits"),
        Mutant::metal("no_barrier", "a slice is read before it is whole"),
    ],
};

pub(crate) const fn host(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: true, metal: false }
}

impl Candidate for FlashCce {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Head::of(ID, call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Head::of(ID, call).map_or("plain", |head| head.class())
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let head = Head::of(ID, call)?;
        Ok(vec![(Dtype::F32, vec![head.rows]); 2])
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        host::run(&Head::of(ID, call)?, how, out)
    }

    fn flops(&self, call: &Call<'_>) -> f64 {
        Head::of(ID, call).map_or(0.0, |head| 2.0 * head.work() as f64)
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        let losses = reference::losses(&Head::of(ID, call)?);
        Ok(vec![losses.loss, losses.lse])
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
