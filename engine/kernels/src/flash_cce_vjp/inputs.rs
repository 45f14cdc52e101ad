//! Where gradients of a head's loss are tried: as the loss, on both sides of each chunk.

use mlx_parity_tensor::Dtype;

use crate::call::{Buffer, Operand};
use crate::candidate::{Expected, Probe, ShapeClass, Trial};
use crate::draw::{Draw, Kind};
use crate::flash_cce::call::Head;
use crate::flash_cce::{inputs, reference};

use super::ID;

pub(super) const CLASSES: &[ShapeClass] = &[
    ShapeClass {
        name: "plain",
        what: "a matrix of floats",
        lattice: &[
            &[1, 8, 2, 0, 0],
            &[3, 33, 31, 0, 0],
            &[4, 64, 32, 0, 0],
            &[7, 40, 33, 0, 0],
            &[8, 16, 255, 0, 0],
            &[9, 65, 256, 0, 0],
            &[65, 24, 257, 0, 0],
            &[5, 32, 545, 0, 0],
        ],
        timed: &[32, 128, 1024, 0, 0],
    },
    ShapeClass {
        name: "packed",
        what: "a matrix in affine packing",
        lattice: &[
            &[1, 32, 16, 4, 32],
            &[3, 64, 33, 4, 32],
            &[8, 128, 65, 8, 64],
            &[9, 128, 257, 4, 64],
            &[66, 32, 40, 3, 32],
        ],
        timed: &[32, 128, 1024, 4, 64],
    },
];

/// The trial of the loss, its logsumexps in float64 rounded to float32, and a cotangent.
pub(super) fn trial(sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
    backward(inputs::trial(sizes, dtype, seed), seed)
}

fn backward(mut trial: Trial, seed: u64) -> Trial {
    let head = Head::of(ID, &trial.call()).expect("a trial of the loss");
    let lse: Vec<f32> = reference::losses(&head).lse.iter().map(|&lse| lse as f32).collect();
    let (rows, plain) = (head.rows, trial.call().find("weight").is_some());
    let mut draw = Draw::new(seed ^ 0xc07a);
    trial.operands.push(Operand::new("lse", [rows], Buffer::F32(lse)));
    trial.operands.push(draw.operand("cotangent", &[rows], Dtype::F32, Kind::Normal, 1.0));
    trial.params.0.push(("want_dweight", f64::from(u8::from(plain))));
    trial
}

/// As of the loss; without the matrix's gradient.
pub(super) fn probes(class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
    let large = |probe: &Probe| matches!(probe.expected, Expected::Reference);
    let of_loss = inputs::probes(class, dtype);
    // The last digit of a large logsumexp is more than a probability may be off.
    let finite = of_loss.iter().filter(|probe| large(probe));
    let finite = finite.map(|probe| Probe {
        trial: backward(probe.trial.clone(), 41),
        expected: Expected::Finite,
    });
    let mut probes: Vec<Probe> = finite.collect();
    for probe in of_loss {
        let Expected::SameAs(whole) = probe.expected else { continue };
        let whole = backward(*whole, 42);
        let trial = backward(probe.trial, 42);
        probes.push(Probe { trial, expected: Expected::SameAs(Box::new(whole)) });
    }
    let mut alone = trial(class.lattice[2], dtype, 40);
    alone.params.0.retain(|(name, _)| *name != "want_dweight");
    alone.name.push_str("/dhidden");
    probes.push(Probe { trial: alone, expected: Expected::Reference });
    probes
}
