//! Where the kernel is tried: rows, inputs, widths and outputs on both sides of the boundaries of tiles.

use mlx_parity_tensor::Dtype;

use super::operands::trial;
use crate::candidate::{Expected, Probe, ShapeClass, Trial};
use crate::draw::Kind;
use crate::gated::with_gaps;

/// One row, or several, of one packing of 4 or 8 bits; anything else.
pub(super) const CLASSES: &[ShapeClass] = &[
    ShapeClass {
        name: "decode-q4",
        what: "one row, all three of 4 bits",
        lattice: &[
            &[1, 32, 32, 33, 4, 32, 4, 32],
            &[1, 64, 96, 17, 4, 64, 4, 32],
            &[1, 96, 64, 65, 4, 32, 4, 64],
            &[1, 128, 384, 128, 4, 64, 4, 64],
            &[1, 160, 256, 31, 4, 32, 4, 128],
            &[1, 576, 192, 1, 4, 64, 4, 64],
        ],
        timed: &[1, 128, 384, 128, 4, 64, 4, 64],
    },
    ShapeClass {
        name: "decode-q8",
        what: "one row, all three of 8 bits",
        lattice: &[
            &[1, 32, 32, 33, 8, 32, 8, 32],
            &[1, 64, 96, 40, 8, 64, 8, 32],
            &[1, 96, 64, 65, 8, 32, 8, 64],
            &[1, 128, 384, 128, 8, 64, 8, 64],
            &[1, 160, 256, 16, 8, 32, 8, 128],
        ],
        timed: &[1, 128, 384, 128, 8, 64, 8, 64],
    },
    ShapeClass {
        name: "prefill-q4",
        what: "several rows, all three of 4 bits",
        lattice: &[
            &[2, 32, 32, 33, 4, 32, 4, 32],
            &[3, 64, 96, 17, 4, 64, 4, 32],
            &[4, 96, 64, 65, 4, 32, 4, 64],
            &[8, 128, 384, 128, 4, 64, 4, 64],
            &[9, 160, 256, 31, 4, 32, 4, 128],
            &[33, 64, 64, 64, 4, 64, 4, 64],
        ],
        timed: &[64, 128, 384, 128, 4, 64, 4, 64],
    },
    ShapeClass {
        name: "prefill-q8",
        what: "several rows, all three of 8 bits",
        lattice: &[
            &[2, 32, 32, 33, 8, 32, 8, 32],
            &[3, 64, 96, 17, 8, 64, 8, 32],
            &[5, 96, 64, 65, 8, 32, 8, 64],
            &[8, 128, 384, 128, 8, 64, 8, 64],
            &[31, 64, 64, 64, 8, 64, 8, 64],
        ],
        timed: &[64, 128, 384, 128, 8, 64, 8, 64],
    },
    ShapeClass {
        name: "mixed",
        what: "matrices of different bits, or none of 4 or 8",
        lattice: &[
            &[1, 64, 96, 33, 4, 64, 8, 32],
            &[1, 96, 64, 17, 3, 32, 3, 32],
            &[3, 64, 96, 65, 6, 32, 5, 32],
            &[5, 128, 64, 40, 8, 128, 4, 64],
            &[7, 64, 64, 64, 2, 64, 2, 64],
        ],
        timed: &[16, 128, 384, 128, 4, 64, 8, 64],
    },
];

/// The trial of a seed: seeds in turn draw numbers of each kind.
pub(super) fn seeded(sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
    trial(sizes, dtype, seed, Kind::ALL[seed as usize % Kind::ALL.len()])
}

/// Numbers of each kind at the class's boundary sizes, and x and the residual as views with gaps.
pub(super) fn probes(class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
    let kinds = [Kind::Offset, Kind::Ones, Kind::Edge];
    let sizes = class.lattice.iter().skip(1);
    let of_kind = |(kind, sizes): (Kind, &&[usize])| Probe {
        trial: trial(sizes, dtype, 11, kind),
        expected: Expected::Reference,
    };
    let mut probes: Vec<Probe> = kinds.into_iter().zip(sizes).map(of_kind).collect();
    let whole = trial(class.lattice[2], dtype, 13, Kind::Normal);
    let trial = with_gaps(whole.clone(), &["x", "residual"]);
    probes.push(Probe { trial, expected: Expected::SameAs(Box::new(whole)) });
    probes
}
