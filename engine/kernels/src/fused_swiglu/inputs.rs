//! Where gated kernels are tried: rows, inputs and outputs on both sides of every boundary of tiles
//! (4, 8 and 32 rows, 16 and 32 outputs, 16 words), each packing, views, and numbers that are hard to add.

use mlx_parity_tensor::Dtype;

use crate::candidate::{Expected, Probe, ShapeClass, Trial};
use crate::draw::Kind;
use crate::gated::{trial, with_gaps};

/// One row, or several, of one packing of 4 or 8 bits; anything else.
pub(crate) const CLASSES: &[ShapeClass] = &[
    ShapeClass {
        name: "decode-q4",
        what: "one row, gate and up of 4 bits",
        lattice: &[
            &[1, 32, 1, 4, 32, 4, 32],
            &[1, 64, 15, 4, 64, 4, 64],
            &[1, 96, 16, 4, 32, 4, 32],
            &[1, 128, 17, 4, 64, 4, 64],
            &[1, 128, 384, 4, 64, 4, 64],
            &[1, 160, 31, 4, 32, 4, 32],
            &[1, 256, 33, 4, 128, 4, 32],
            &[1, 576, 65, 4, 64, 4, 64],
            &[1, 1024, 96, 4, 128, 4, 64],
        ],
        timed: &[1, 128, 384, 4, 64, 4, 64],
    },
    ShapeClass {
        name: "decode-q8",
        what: "one row, gate and up of 8 bits",
        lattice: &[
            &[1, 32, 1, 8, 32, 8, 32],
            &[1, 64, 15, 8, 64, 8, 64],
            &[1, 96, 17, 8, 32, 8, 32],
            &[1, 128, 384, 8, 64, 8, 64],
            &[1, 160, 31, 8, 32, 8, 32],
            &[1, 256, 33, 8, 128, 8, 32],
            &[1, 576, 65, 8, 64, 8, 64],
        ],
        timed: &[1, 128, 384, 8, 64, 8, 64],
    },
    ShapeClass {
        name: "prefill-q4",
        what: "several rows, gate and up of 4 bits",
        lattice: &[
            &[2, 32, 1, 4, 32, 4, 32],
            &[3, 96, 65, 4, 32, 4, 32],
            &[4, 64, 16, 4, 64, 4, 64],
            &[5, 128, 15, 4, 128, 4, 64],
            &[7, 160, 17, 4, 32, 4, 32],
            &[8, 128, 384, 4, 64, 4, 64],
            &[9, 256, 31, 4, 64, 4, 64],
            &[31, 64, 33, 4, 32, 4, 64],
            &[33, 576, 32, 4, 64, 4, 64],
        ],
        timed: &[64, 128, 384, 4, 64, 4, 64],
    },
    ShapeClass {
        name: "prefill-q8",
        what: "several rows, gate and up of 8 bits",
        lattice: &[
            &[2, 32, 1, 8, 32, 8, 32],
            &[3, 96, 65, 8, 32, 8, 32],
            &[4, 64, 16, 8, 64, 8, 64],
            &[6, 128, 15, 8, 128, 8, 64],
            &[8, 128, 384, 8, 64, 8, 64],
            &[9, 256, 31, 8, 64, 8, 64],
            &[32, 64, 33, 8, 32, 8, 64],
        ],
        timed: &[64, 128, 384, 8, 64, 8, 64],
    },
    ShapeClass {
        name: "mixed",
        what: "gate and up of different bits, or neither of 4 nor of 8",
        lattice: &[
            &[1, 128, 33, 4, 64, 8, 64],
            &[1, 96, 17, 8, 32, 4, 32],
            &[1, 64, 31, 3, 32, 3, 32],
            &[3, 128, 33, 8, 128, 4, 64],
            &[5, 192, 17, 2, 64, 2, 64],
            &[3, 96, 40, 3, 32, 5, 32],
            &[6, 128, 16, 5, 64, 6, 128],
            &[2, 64, 65, 6, 64, 3, 64],
        ],
        timed: &[16, 128, 384, 4, 64, 8, 64],
    },
];

/// The trial of a seed: seeds in turn draw numbers of each kind.
pub(crate) fn seeded(sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
    let kind = Kind::ALL[seed as usize % Kind::ALL.len()];
    trial(sizes, dtype, seed, kind)
}

/// Numbers of each kind at the class's boundary sizes, and x as a view with gaps.
pub(crate) fn probes(class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
    let reference = |trial| Probe { trial, expected: Expected::Reference };
    let kinds = [Kind::Offset, Kind::Ones, Kind::Edge];
    let mut probes: Vec<Probe> = kinds
        .into_iter()
        .zip(class.lattice.iter().skip(1))
        .map(|(kind, sizes)| reference(trial(sizes, dtype, 11, kind)))
        .collect();
    let whole = trial(class.lattice[3], dtype, 13, Kind::Normal);
    let trial = with_gaps(whole.clone(), &["x"]);
    probes.push(Probe { trial, expected: Expected::SameAs(Box::new(whole)) });
    probes
}
