//! Where gated gelu and its gradients are tried.

use mlx_parity_tensor::Dtype;

use crate::call::{Operand, Params};
use crate::candidate::{Expected, Probe, ShapeClass, Trial};
use crate::draw::{self, Draw, Kind};
use crate::numbers::{Bf16, F16, Format};

pub(crate) const SIZES: &[&str] = &["rows", "width"];

pub(crate) const CLASSES: &[ShapeClass] = &[
    ShapeClass {
        name: "decode",
        what: "one row",
        lattice: &[&[1, 1], &[1, 7], &[1, 15], &[1, 16], &[1, 17], &[1, 333], &[1, 4097]],
        timed: &[1, 8192],
    },
    ShapeClass {
        name: "prefill",
        what: "several rows",
        lattice: &[&[2, 1], &[3, 9], &[5, 64], &[8, 31], &[9, 33], &[32, 257]],
        timed: &[128, 2816],
    },
];

/// The class of a call of so many rows.
pub(crate) fn class(rows: usize) -> &'static str {
    if rows <= 1 { "decode" } else { "prefill" }
}

/// Operands `[rows, width]` of the given names.
pub(crate) fn trial(
    _: &ShapeClass,
    sizes: &[usize],
    dtype: Dtype,
    seed: u64,
    names: &[&'static str],
) -> Trial {
    let &[rows, width] = sizes else { unreachable!("lattices have an entry for each of SIZES") };
    let kind = Kind::ALL[seed as usize % Kind::ALL.len()];
    let mut draw = Draw::new(seed);
    let operand = |&name: &&'static str| draw.operand(name, &[rows, width], dtype, kind, 2.0);
    let operands = names.iter().map(operand).collect();
    let name = format!("rows={rows},width={width}/{}", kind.name());
    Trial { name, operands, params: Params::default() }
}

/// Every number of a half as the gate, or many of f32; views; and each length of a block.
pub(crate) fn probes(class: &ShapeClass, dtype: Dtype, names: &[&'static str]) -> Vec<Probe> {
    let mut probes = vec![near(every_gate(class, dtype, names))];
    if class.name == "decode" {
        let short = |len| near(trial(class, &[1, len], dtype, 4 * len as u64, names));
        probes.extend((1..=9).map(short));
        return probes;
    }
    let plain = trial(class, &[6, 40], dtype, 8, names);
    let views =
        [("gaps", plain_with(&plain, Operand::with_gaps)), ("turned", plain_with(&plain, turned))];
    probes.extend(views.into_iter().map(|(what, operands)| {
        let name = format!("{}/{what}", plain.name);
        let trial = Trial { name, operands, params: Params::default() };
        Probe { trial, expected: Expected::SameAs(Box::new(plain.clone())) }
    }));
    probes
}

fn near(trial: Trial) -> Probe {
    Probe { trial, expected: Expected::Reference }
}

fn plain_with(plain: &Trial, view: fn(&Operand) -> Operand) -> Vec<Operand> {
    plain.operands.iter().map(view).collect()
}

/// The same numbers `[rows, width]`, laid out by columns.
fn turned(of: &Operand) -> Operand {
    let &[rows, width] = of.shape.as_slice() else { unreachable!("trials have two axes") };
    let numbers = of.view().to_f32();
    let columns = (0..rows * width).map(|at| numbers[at % rows * width + at / rows]);
    let buffer = draw::buffer(of.view().data.dtype(), &columns.collect::<Vec<_>>());
    Operand { buffer, strides: vec![1, rows], ..of.clone() }
}

/// Gates up to 16 that are finite: all of a half, an even spread of f32. Other operands between 0.5 and 2.
fn every_gate(class: &ShapeClass, dtype: Dtype, names: &[&'static str]) -> Trial {
    let gates: Vec<f32> = match dtype {
        Dtype::F16 => (0..=u16::MAX).map(F16::widen).collect(),
        Dtype::Bf16 => (0..=u16::MAX).map(Bf16::widen).collect(),
        _ => (0..1 << 16).map(|i| i as f32 / 2048.0 - 16.0).collect(),
    };
    let mut gates: Vec<f32> = gates.into_iter().filter(|gate| gate.abs() <= 16.0).collect();
    let width = if class.name == "decode" { gates.len() } else { 256 };
    gates.truncate(gates.len() / width * width);
    let shape = [gates.len() / width, width];
    let mut draw = Draw::new(1);
    let operand = |&name: &&'static str| {
        let mut others = || gates.iter().map(|_| 0.5 + 1.5 * draw.unit()).collect();
        let numbers: Vec<f32> = if name == "gate" { gates.clone() } else { others() };
        Operand::new(name, shape, draw::buffer(dtype, &numbers))
    };
    let operands = names.iter().map(operand).collect();
    Trial { name: "every-gate".into(), operands, params: Params::default() }
}
