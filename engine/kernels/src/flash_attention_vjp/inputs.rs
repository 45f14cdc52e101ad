//! Where the gradients are tried: the forward's sizes, with its results and a cotangent.

use mlx_parity_tensor::Dtype;

use crate::call::{Operand, Params};
use crate::candidate::{Candidate as _, Expected, Probe, ShapeClass, Trial};
use crate::draw::{Draw, Kind, buffer};
use crate::flash_attention::{
    self as forward, Attention, FlashAttention, attend, copied_probe, views,
};

/// The forward's, but for a single key: its gradient by queries is zero, which no error is small beside.
pub(super) const CLASSES: &[ShapeClass] = &[
    forward::CLASSES[0],
    forward::CLASSES[1],
    ShapeClass {
        lattice: &[
            &[1, 2, 1, 2, 2, 32, 0],
            &[1, 4, 2, 9, 31, 64, 0],
            &[2, 2, 2, 33, 129, 80, 0],
            &[1, 2, 1, 70, 1024, 128, 0],
            &[1, 1, 1, 3, 7, 256, 0],
        ],
        ..forward::CLASSES[2]
    },
];

/// The operands and numbers of a call of the forward, with its results in `dtype` and a cotangent that is not uniform.
fn backward(forward: Trial, dtype: Dtype, seed: u64, cotangent: Kind) -> Trial {
    let call = forward.call();
    let of = Attention::of("flash_attention", &call).expect("a trial of the forward");
    let shape = of.queries.shape.to_vec();
    let scores = attend(&of);
    let numbers = |of: &[f64]| of.iter().map(|&x| x as f32).collect::<Vec<_>>();
    let given = Draw::new(seed ^ 0xd0).operand("cotangent", &shape, dtype, cotangent, 1.0);
    let out = Operand::new("out", shape.clone(), buffer(dtype, &numbers(&scores.out)));
    let lse = Operand::new("lse", &shape[..3], buffer(Dtype::F32, &numbers(&scores.lse)));
    let Trial { name, mut operands, params } = forward;
    operands.extend([out, lse, given]);
    let params = params.0.into_iter().filter(|(name, _)| *name != "want_lse").collect();
    Trial { name, operands, params: Params(params) }
}

pub(super) fn trial(class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
    // Normal operands in every trial: of values far from zero the difference of two sums would say nothing.
    let cotangents = [Kind::Normal, Kind::Ones, Kind::Edge];
    let normal = Kind::ALL.len() as u64 * seed;
    let forward = FlashAttention.trial(class, sizes, dtype, normal);
    backward(forward, dtype, seed, cotangents[seed as usize % cotangents.len()])
}

pub(super) fn probes(class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
    let window = if class.name == "window" { 7 } else { 0 };
    let small = |sizes: [usize; 6]| {
        let sizes: Vec<usize> = sizes.into_iter().chain([window]).collect();
        trial(class, &sizes, dtype, 0)
    };
    let near = |trial| Probe { trial, expected: Expected::Reference };
    let counts = 1..=9;
    let mut probes: Vec<Probe> =
        counts.map(|n| near(small([1, 2, 1, n, n + 1 + n % 3, 32]))).collect();
    // Heads that share two heads of keys, not one.
    probes.push(near(small([1, 4, 2, 6, 11, 32])));
    let plain = small([2, 4, 2, 20, 45, 64]);
    for (what, mut operands) in views(&plain.operands[..3]) {
        operands.extend_from_slice(&plain.operands[3..]);
        probes.push(copied_probe(&plain, what, operands));
    }
    probes
}
