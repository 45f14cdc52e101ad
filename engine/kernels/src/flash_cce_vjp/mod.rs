//! Gradients of a head's loss without its logits: they are made again, a chunk of classes at a time.

mod call;
mod host;
mod inputs;
mod metal;

use mlx_parity_tensor::Dtype;

use self::call::Backward;
use crate::call::{Call, Out};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::flash_cce::call::{Head, IGNORED};
use crate::flash_cce::inputs::SIZES;
use crate::flash_cce::{host as mutant, reference};
use crate::gated::DTYPES;
use crate::how::How;
use crate::spec::{Claim, Mutant, Spec, source};

const ID: &str = "flash_cce_vjp";

/// The kernel.
///
/// Operands of `flash_cce`, with `lse` f32 `[positions]` as it gave it, and `cotangent` f32 `[positions]` of the
/// losses. Results: `dhidden` like `hidden`, and where the number `want_dweight` is 1, `dweight` like a plain `weight`.
#[derive(Debug)]
pub struct FlashCceVjp;

static SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Envelope,
    baseline: "vjp of cross_entropy(matmul(hidden, weight^T), targets), or of quantized_matmul",
    dtypes: DTYPES,
    backward: None,
    spread: None,
    min_rows: 1,
    sources: &[
        source!("flash_cce_vjp/mod.rs"),
        source!("flash_cce_vjp/call.rs"),
        source!("flash_cce_vjp/host.rs"),
        source!("flash_cce_vjp/inputs.rs"),
        source!("flash_cce_vjp/metal.rs"),
        source!("flash_cce_vjp/kernel.metal"),
        source!("flash_cce/mod.rs"),
        source!("flash_cce/call.rs"),
        source!("flash_cce/reference.rs"),
        source!("flash_cce/inputs.rs"),
        source!("flash_cce/metal.rs"),
        source!("flash_cce/header.metal"),
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
        Mutant::both("ignored_counted", "positions without a target have gradients"),
        Mutant::both("target_forgotten", "probabilities without the one taken off at the target"),
        Mutant::both("target_off_by_one", "the one taken off behind the target"),
        Mutant::both(
            "cotangent_forgotten",
            "gradients of the sum of losses, whatever the cotangent",
        ),
        Mutant::both("chunk_dropped", "the last chunk of classes left out"),
        Mutant::both("last_class_dropped", "the last class left out"),
        Mutant::both("stale_tile", "the last chunk uses the weights of the one before"),
        Mutant::both(
            "max_not_subtracted",
            "exponentials of logits, divided by that of the logsumexp",
        ),
        mutant("needless_rounding", "logits rounded to bfloat16"),
        mutant(
            "mean_taken",
            "gradients divided by the number of positions, which is the caller's to do",
        ),
        Mutant::both("wrong_group", "each group with the scale and bias of its neighbour"),
        Mutant::both("bias_forgotten", "weights without their groups' biases"),
        Mutant::metal(
            "dweight_transposed",
            "the gradient by weights takes blocks of the logits' gradient for their transposes",
        ),
        Mutant::metal("no_barrier", "a tile is read before it is whole"),
    ],
};

impl Candidate for FlashCceVjp {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Backward::of(call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        Head::of(ID, call).map_or("plain", |head| head.class())
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let Backward { head, want_dweight, .. } = Backward::of(call)?;
        let mut results = vec![(head.hidden.data.dtype(), vec![head.rows, head.cols])];
        results.extend(want_dweight.then(|| (head.weight.dtype(), vec![head.classes, head.cols])));
        Ok(results)
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        let wanted = self.results(call)?;
        let len = |shape: &[usize]| shape.iter().product::<usize>();
        let fits = |((dtype, shape), out): (&(Dtype, Vec<usize>), &Out<'_>)| {
            *dtype == out.dtype() && len(shape) == out.len()
        };
        if wanted.len() != out.len() || !wanted.iter().zip(&*out).all(fits) {
            return Err(KernelError::Malformed {
                kernel: ID,
                what: format!("results are not {wanted:?}"),
            });
        }
        host::run(&Backward::of(call)?, how, out)
    }

    fn flops(&self, call: &Call<'_>) -> f64 {
        let products =
            |of: Backward<'_>| if of.want_dweight { 3.0 } else { 2.0 } * of.head.work() as f64;
        Backward::of(call).map_or(0.0, |of| 2.0 * products(of))
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        Ok(gradients(&Backward::of(call)?))
    }

    fn sizes(&self) -> &'static [&'static str] {
        SIZES
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

/// In float64: `(softmax(logits) - onehot(target)) · cotangent`, times the matrix and times the hidden states.
fn gradients(of: &Backward<'_>) -> Vec<Vec<f64>> {
    let head = &of.head;
    let (cols, classes) = (head.cols, head.classes);
    let losses = reference::losses(head);
    let (hidden, cotangent) = (head.hidden.to_f64(), of.cotangent.to_f64());
    let mut dhidden = vec![0.0; head.rows * cols];
    let mut dweight = vec![0.0; classes * cols];
    for class in 0..classes {
        let weight = head.weight.row_f64(class, cols);
        for row in 0..head.rows {
            let target = head.targets[row];
            if target == IGNORED {
                continue;
            }
            let share = (losses.logits[row * classes + class] - losses.lse[row]).exp();
            let slope = (share - f64::from(target == class as i32)) * cotangent[row];
            let to = &mut dhidden[row * cols..][..cols];
            to.iter_mut().zip(&weight).for_each(|(to, w)| *to += slope * w);
            let to = &mut dweight[class * cols..][..cols];
            to.iter_mut().zip(&hidden[row * cols..]).for_each(|(to, h)| *to += slope * h);
        }
    }
    let mut results = vec![dhidden];
    results.extend(of.want_dweight.then_some(dweight));
    results
}
