//! Where attention and its gradients are tried.

use half::{bf16, f16};
use mlx_parity_tensor::Dtype;

use crate::call::{Buffer, Operand, Params};
use crate::candidate::{Expected, Probe, ShapeClass, Trial};
use crate::draw::{Draw, Kind, buffer};

pub(crate) const SIZES: &[&str] =
    &["batch", "heads", "kv_heads", "queries", "keys", "dim", "window"];

pub(crate) const CLASSES: &[ShapeClass] = &[
    ShapeClass {
        name: "causal",
        what: "each query sees the keys up to its own",
        lattice: &[
            &[1, 2, 1, 2, 2, 32, 0],
            &[1, 4, 2, 9, 9, 64, 0],
            &[2, 2, 2, 33, 65, 80, 0],
            &[1, 2, 1, 64, 127, 96, 0],
            &[1, 4, 1, 65, 129, 128, 0],
            &[1, 2, 2, 5, 1023, 64, 0],
            &[1, 2, 1, 3, 1025, 32, 0],
            &[1, 1, 1, 31, 33, 256, 0],
        ],
        timed: &[1, 4, 2, 256, 256, 64, 0],
    },
    ShapeClass {
        name: "window",
        what: "each query sees the last few keys up to its own",
        lattice: &[
            &[1, 2, 1, 9, 9, 32, 4],
            &[1, 4, 2, 33, 70, 64, 32],
            &[2, 2, 1, 65, 129, 80, 33],
            &[1, 2, 2, 40, 300, 128, 129],
            &[1, 1, 1, 130, 260, 96, 1],
        ],
        timed: &[1, 4, 2, 256, 512, 64, 128],
    },
    ShapeClass {
        name: "full",
        what: "each query sees every key",
        lattice: &[
            &[1, 2, 1, 2, 1, 32, 0],
            &[1, 4, 2, 9, 31, 64, 0],
            &[2, 2, 2, 33, 129, 80, 0],
            &[1, 2, 1, 70, 1024, 128, 0],
            &[1, 1, 1, 3, 7, 256, 0],
        ],
        timed: &[1, 4, 2, 256, 256, 64, 0],
    },
];

/// The sizes of a lattice's entry.
struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    window: usize,
}

fn sizes_of(sizes: &[usize]) -> Sizes {
    let &[batch, heads, kv_heads, queries, keys, dim, window] = sizes else {
        unreachable!("lattices have an entry for each of SIZES")
    };
    Sizes { batch, heads, kv_heads, queries, keys, dim, window }
}

/// Queries, keys and values of a kind. Kinds far from zero or large by design are for values alone: their scores
/// would be one key's.
fn operands(of: &Sizes, dtype: Dtype, kind: Kind, seed: u64) -> Vec<Operand> {
    let mut draw = Draw::new(seed);
    let tame = if kind == Kind::Ones { Kind::Ones } else { Kind::Normal };
    let kv = [of.batch, of.kv_heads, of.keys, of.dim];
    vec![
        draw.operand("queries", &[of.batch, of.heads, of.queries, of.dim], dtype, tame, 1.0),
        draw.operand("keys", &kv, dtype, tame, 1.0),
        draw.operand("values", &kv, dtype, kind, 1.0),
    ]
}

fn params(class: &ShapeClass, of: &Sizes, want_lse: bool) -> Params {
    let flag = |value: bool| f64::from(u8::from(value));
    Params(vec![
        ("scale", f64::from((of.dim as f32).powf(-0.5))),
        ("causal", flag(class.name != "full")),
        ("window", of.window as f64),
        ("want_lse", flag(want_lse)),
    ])
}

pub(super) fn trial(class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
    let of = sizes_of(sizes);
    let kind = Kind::ALL[seed as usize % Kind::ALL.len()];
    let operands = operands(&of, dtype, kind, seed);
    Trial { name: name(&of, kind.name()), operands, params: params(class, &of, false) }
}

fn name(of: &Sizes, what: &str) -> String {
    let Sizes { batch, heads, kv_heads, queries, keys, dim, window } = of;
    format!(
        "batch={batch},heads={heads},kv_heads={kv_heads},queries={queries},keys={keys},dim={dim},window={window}/{what}"
    )
}

pub(super) fn probes(class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
    let near = |trial| Probe { trial, expected: Expected::Reference };
    let mut probes = vec![];
    for keys in [1, 2, 9, 33, 333] {
        for (what, key) in [("first", 0), ("last", keys - 1)] {
            probes.push(near(needle(class, keys, key, what, dtype)));
        }
    }
    probes.push(near(large_scores(class, dtype)));
    if dtype == Dtype::F32 {
        let sizes = sizes(class, [1, 4, 2, 33, 65, 64]);
        let plain = trial(class, &sizes, dtype, 0);
        let params = params(class, &sizes_of(&sizes), true);
        probes.push(near(Trial { name: format!("{}/lse", plain.name), params, ..plain }));
    }
    let plain = trial(class, &sizes(class, [2, 4, 2, 20, 45, 64]), dtype, 0);
    for (what, operands) in views(&plain.operands) {
        probes.push(copied_probe(&plain, what, operands));
    }
    probes
}

/// The same call on operands that lie otherwise.
pub(crate) fn copied_probe(plain: &Trial, what: &str, operands: Vec<Operand>) -> Probe {
    let trial =
        Trial { name: format!("{}/{what}", plain.name), operands, params: plain.params.clone() };
    Probe { trial, expected: Expected::SameAs(Box::new(plain.clone())) }
}

fn sizes(class: &ShapeClass, of: [usize; 6]) -> Vec<usize> {
    let window = if class.name == "window" { 7 } else { 0 };
    of.into_iter().chain([window]).collect()
}

/// One key that a query along it finds among keys that are near zero, and whose value is 100 times theirs.
fn needle(class: &ShapeClass, keys: usize, key: usize, what: &str, dtype: Dtype) -> Trial {
    let queries = if keys < 2 { 1 } else { 2 };
    let of = sizes_of(&sizes(class, [1, 2, 1, queries, keys, 32]));
    let mut draw = Draw::new(keys as u64);
    let mut small =
        |rows: usize| -> Vec<f32> { (0..rows * of.dim).map(|_| 0.01 * draw.normal()).collect() };
    let (mut found, mut values) = (small(keys), small(keys));
    found[key * of.dim..][..of.dim].fill(2.0);
    values[key * of.dim..][..of.dim].iter_mut().for_each(|x| *x = x.abs() + 1.0);
    let shape = [1, 1, keys, of.dim];
    let asked = vec![1.0; 2 * queries * of.dim];
    let operands = vec![
        Operand::new("queries", [1, 2, queries, of.dim], buffer(dtype, &asked)),
        Operand::new("keys", shape, buffer(dtype, &found)),
        Operand::new("values", shape, buffer(dtype, &values)),
    ];
    let name = format!("needle-{what}/keys={keys}");
    Trial { name, operands, params: params(class, &of, false) }
}

/// Scores above 100, whose exponentials are no floats; every product and sum of them is exact in float32.
fn large_scores(class: &ShapeClass, dtype: Dtype) -> Trial {
    let of = sizes_of(&sizes(class, [1, 2, 1, 9, 40, 64]));
    let mut operands = operands(&of, dtype, Kind::Normal, 5);
    let mut draw = Draw::new(6);
    for operand in &mut operands[..2] {
        let number = |_| 4.0 + draw.below(3) as f32 / 8.0;
        let numbers: Vec<f32> = (0..operand.view().len()).map(number).collect();
        operand.buffer = buffer(dtype, &numbers);
    }
    Trial { name: "large-scores".to_owned(), operands, params: params(class, &of, false) }
}

/// The same operands as they lie in caches (unused slots full of NaN behind the last key), and between other heads.
pub(crate) fn views(operands: &[Operand]) -> [(&'static str, Vec<Operand>); 2] {
    let slots = |of: &Operand| if of.name == "queries" { of.clone() } else { with_slots(of) };
    [
        ("unused-slots", operands.iter().map(slots).collect()),
        ("heads-inside", operands.iter().map(heads_inside).collect()),
    ]
}

/// `[batch, heads, n, d]` within `[batch, heads, n + 3, d]`.
fn with_slots(of: &Operand) -> Operand {
    const UNUSED: usize = 3;
    let &[batch, heads, n, d] = of.shape.as_slice() else { unreachable!("four axes") };
    let rows = n + UNUSED;
    let place = |at: usize| {
        let (head, row) = (at / (rows * d), at / d % rows);
        (row < n).then_some((head * n + row) * d + at % d)
    };
    let buffer = scattered(&of.buffer, batch * heads * rows * d, place);
    let strides = vec![heads * rows * d, rows * d, d, 1];
    Operand { name: of.name, buffer, offset: 0, shape: of.shape.clone(), strides }
}

/// `[batch, heads, n, d]` as the transposed view of `[batch, n, heads, d]`.
fn heads_inside(of: &Operand) -> Operand {
    let &[batch, heads, n, d] = of.shape.as_slice() else { unreachable!("four axes") };
    let place = |at: usize| {
        let (b, row, head) = (at / (n * heads * d), at / (heads * d) % n, at / d % heads);
        Some(((b * heads + head) * n + row) * d + at % d)
    };
    let buffer = scattered(&of.buffer, batch * heads * n * d, place);
    let strides = vec![n * heads * d, d, heads * d, 1];
    Operand { name: of.name, buffer, offset: 0, shape: of.shape.clone(), strides }
}

/// `len` elements, each that of a place of another buffer, or NaN.
fn scattered(of: &Buffer, len: usize, place: impl Fn(usize) -> Option<usize>) -> Buffer {
    fn each<T: Copy>(
        of: &[T],
        len: usize,
        nan: T,
        place: impl Fn(usize) -> Option<usize>,
    ) -> Vec<T> {
        (0..len).map(|at| place(at).map_or(nan, |from| of[from])).collect()
    }
    match of {
        Buffer::F32(of) => Buffer::F32(each(of, len, f32::NAN, place)),
        Buffer::F16(of) => Buffer::F16(each(of, len, f16::NAN.to_bits(), place)),
        Buffer::Bf16(of) => Buffer::Bf16(each(of, len, bf16::NAN.to_bits(), place)),
        Buffer::U32(of) => Buffer::U32(each(of, len, u32::MAX, place)),
        Buffer::I32(of) => Buffer::I32(each(of, len, -1, place)),
    }
}
