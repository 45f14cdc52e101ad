//! Where losses of a head are tried: classes and positions on both sides of every boundary of tiles, plain and
//! packed matrices, targets at both ends, some of them ignored.

use mlx_parity_tensor::Dtype;

use super::call::IGNORED;
use crate::call::{Buffer, Operand, Params};
use crate::candidate::{Expected, Probe, ShapeClass, Trial};
use crate::draw::{Draw, Kind};

pub(crate) const SIZES: &[&str] = &["rows", "in", "classes", "bits", "group"];

pub(crate) const CLASSES: &[ShapeClass] = &[
    ShapeClass {
        name: "plain",
        what: "a matrix of floats",
        lattice: &[
            &[1, 8, 1, 0, 0],
            &[1, 33, 31, 0, 0],
            &[2, 64, 32, 0, 0],
            &[7, 40, 33, 0, 0],
            &[8, 16, 257, 0, 0],
            &[9, 65, 511, 0, 0],
            &[33, 32, 512, 0, 0],
            &[16, 48, 513, 0, 0],
            &[5, 24, 1057, 0, 0],
        ],
        timed: &[32, 128, 2048, 0, 0],
    },
    ShapeClass {
        name: "packed",
        what: "a matrix in affine packing",
        lattice: &[
            &[1, 32, 16, 4, 32],
            &[3, 64, 33, 4, 32],
            &[8, 128, 65, 8, 64],
            &[9, 128, 513, 4, 64],
            &[4, 96, 545, 8, 32],
            &[2, 64, 40, 3, 32],
        ],
        timed: &[32, 128, 2048, 4, 64],
    },
];

/// The trial of a seed: seeds in turn draw numbers of each kind.
pub(crate) fn trial(sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
    drawn(sizes, dtype, seed, (Kind::ALL[seed as usize % Kind::ALL.len()], 1.0))
}

/// Hidden states of a kind, and a matrix that makes logits of about `spread` of them.
fn drawn(sizes: &[usize], dtype: Dtype, seed: u64, (kind, spread): (Kind, f32)) -> Trial {
    let &[rows, cols, classes, bits, group] = sizes else {
        unreachable!("lattices have an entry for each of SIZES")
    };
    let mut draw = Draw::new(seed);
    let size = match (kind, dtype) {
        (Kind::Offset, Dtype::F16) => 512.0,
        (Kind::Offset, _) => 1e6,
        (Kind::Edge, _) => 64.0,
        _ => 1.0,
    };
    let scale = spread / (size * (cols as f32).sqrt());
    let mut operands = vec![draw.operand("hidden", &[rows, cols], dtype, kind, 1.0)];
    let mut params = Params::default();
    if bits == 0 {
        operands.push(draw.operand("weight", &[classes, cols], dtype, Kind::Normal, scale));
    } else {
        let names = ["weight_w", "weight_scales", "weight_biases"];
        operands.extend(draw.packed(names, (classes, cols), (bits as u32, group), dtype, scale));
        params.0.extend([("bits", bits as f64), ("group", group as f64)]);
    }
    operands.push(Operand::new("targets", [rows], Buffer::I32(targets(&mut draw, rows, classes))));
    let name = SIZES.iter().zip(sizes).map(|(name, size)| format!("{name}={size}"));
    let name = format!("{}/{}", name.collect::<Vec<_>>().join(","), kind.name());
    Trial { name, operands, params }
}

/// The last class, the first, none, then any.
fn targets(draw: &mut Draw, rows: usize, classes: usize) -> Vec<i32> {
    let target = |row: usize| match row {
        0 => classes as i32 - 1,
        1 => 0,
        2 => IGNORED,
        _ if draw.below(8) == 0 => IGNORED,
        _ => draw.below(classes) as i32,
    };
    (0..rows).map(target).collect()
}

/// Logits that overflow an exponential, and hidden states and targets as views with gaps.
pub(crate) fn probes(class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
    let sizes = class.lattice[3];
    let mut large = drawn(sizes, dtype, 31, (Kind::Normal, 100.0));
    large.name.push_str("/large");
    let whole = drawn(sizes, dtype, 32, (Kind::Normal, 1.0));
    let views = ["hidden", "targets", "weight"];
    let trial = crate::gated::with_gaps(whole.clone(), &views);
    let views = Probe { trial, expected: Expected::SameAs(Box::new(whole)) };
    vec![Probe { trial: large, expected: Expected::Reference }, views]
}
