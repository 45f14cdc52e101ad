//! Attention of one query a head over packed keys and values, which are never unpacked to memory.

mod block;
mod host;
mod inputs;
mod metal;
mod problem;
mod reference;

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Out};
use crate::candidate::{Candidate, Probe, ShapeClass, Trial};
use crate::error::KernelError;
use crate::how::How;
use crate::spec::{Claim, Mutant, Spec, source};

use problem::Problem;

const ID: &str = "fused_decode_sdpa";

/// Dtypes of queries, scales and biases.
const DTYPES: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::Bf16];

/// The kernel.
#[derive(Debug)]
pub(crate) struct FusedDecodeSdpa;

/// A bug that both sources have.
const fn both(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: true, metal: true }
}

/// A bug of the host source.
const fn host_only(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: true, metal: false }
}

/// A bug of the Metal source.
const fn metal_only(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: false, metal: true }
}

static SPEC: Spec = Spec {
    id: ID,
    claim: Claim::Envelope,
    baseline: "quantized_matmul(softmax(quantized_matmul(scale * q, k)), v), of mlx_lm/models/base.py",
    dtypes: DTYPES,
    backward: None,
    spread: None,
    min_rows: 1,
    sources: &[
        source!("fused_decode_sdpa/mod.rs"),
        source!("fused_decode_sdpa/problem.rs"),
        source!("fused_decode_sdpa/host.rs"),
        source!("fused_decode_sdpa/block.rs"),
        source!("fused_decode_sdpa/reference.rs"),
        source!("fused_decode_sdpa/inputs.rs"),
        source!("fused_decode_sdpa/metal.rs"),
        source!("fused_decode_sdpa/kernel.metal"),
        source!("launch.rs"),
        source!("affine.rs"),
        source!("widen.rs"),
        source!("numbers.rs"),
        source!("numbers/exp.rs"),
        source!("parallel.rs"),
        source!("draw.rs"),
    ],
    metal: Some(metal::METAL),
    mutants: &[
        both("newest_dropped", "the last key is not attended"),
        both("first_dropped", "the first visible key is not attended"),
        both("window_off_by_one", "the window is one key too long"),
        both("kept_ignored", "the kept prefix leaves with the window"),
        both("max_not_subtracted", "weights are exp(score)"),
        both("rescale_forgotten", "totals are not scaled down when the maximum grows"),
        both("scale_off", "scores 1 % too large"),
        both("bias_forgotten", "keys without their groups' biases"),
        both("wrong_group", "keys with the scale and bias of a neighbouring group"),
        both("wrong_kv_head", "head h reads kv head h % kv_heads"),
        both("join_unweighted", "parts of the keys are added without their maxima"),
        both("chunk_dropped", "the last part of the keys is not joined"),
        both("strides_ignored", "a cache with spare capacity read as if it had none"),
        both("softcap_ignored", "scores are not capped"),
        host_only("tail_unmasked", "lanes behind the last key count in the sum"),
        host_only("bias_x099", "values' biases × 0.99"),
        host_only("bf16_accumulator", "totals are rounded to bfloat16 after every block"),
        metal_only("no_barrier", "parts are joined before all are written"),
        metal_only("half_accumulator", "totals are kept in bfloat16"),
    ],
};

impl Candidate for FusedDecodeSdpa {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        Problem::of(call).map(drop)
    }

    fn class(&self, call: &Call<'_>) -> &'static str {
        match Problem::of(call).map(|of| of.bits) {
            Ok(8) => "kv8",
            _ => "kv4",
        }
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let of = Problem::of(call)?;
        Ok(vec![(of.queries.data.dtype(), vec![of.batch, of.heads, 1, of.dim])])
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        let of = Problem::of(call)?;
        let (dtype, len) = (of.queries.data.dtype(), of.batch * of.heads * of.dim);
        match out {
            [out] if out.len() == len && out.dtype() == dtype => host::run(&of, how, out),
            _ => Err(KernelError::Malformed {
                kernel: ID,
                what: format!("{} results, wanted one of {len} {dtype}", out.len()),
            }),
        }
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        Ok(vec![reference::attend(&Problem::of(call)?)])
    }

    fn flops(&self, call: &Call<'_>) -> f64 {
        let flops = |of: Problem<'_>| {
            let keys: usize = of.visible(How::new()).into_iter().map(|range| range.len()).sum();
            (4 * of.batch * of.heads * keys * of.dim) as f64
        };
        Problem::of(call).map_or(0.0, flops)
    }

    fn sizes(&self) -> &'static [&'static str] {
        inputs::SIZES
    }

    fn classes(&self) -> &'static [ShapeClass] {
        inputs::CLASSES
    }

    fn trial(&self, class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
        inputs::seeded(class, sizes, dtype, seed)
    }

    fn probes(&self, class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
        inputs::probes(class, dtype)
    }
}
