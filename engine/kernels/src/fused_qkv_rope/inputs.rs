//! Where queries, keys and values are tried: heads that fill tiles of 32 outputs and heads that do not, with norms
//! and without, rotated in part, in both pairings.

use mlx_parity_tensor::Dtype;

use crate::call::Params;
use crate::candidate::{Expected, Probe, ShapeClass, Trial};
use crate::draw::{Draw, Kind};

pub(super) const SIZES: &[&str] = &[
    "batch",
    "rows",
    "in",
    "heads",
    "kv_heads",
    "head_dim",
    "bits",
    "v_bits",
    "group",
    "normed",
    "dims",
    "traditional",
    "offset",
];

/// One row, or several, of one packing of 4 or 8 bits; anything else.
pub(super) const CLASSES: &[ShapeClass] = &[
    ShapeClass {
        name: "decode-q4",
        what: "one row, 4 bits",
        lattice: &[
            &[1, 1, 64, 1, 1, 2, 4, 4, 64, 1, 2, 0, 0],
            &[1, 1, 64, 4, 2, 16, 4, 4, 32, 1, 16, 0, 5],
            &[1, 1, 128, 3, 1, 64, 4, 4, 64, 0, 64, 0, 31],
            &[1, 1, 96, 2, 2, 80, 4, 4, 32, 1, 20, 0, 7],
            &[1, 1, 128, 5, 5, 24, 4, 4, 128, 1, 24, 1, 3],
        ],
        timed: &[1, 1, 384, 6, 2, 64, 4, 4, 64, 1, 64, 0, 40],
    },
    ShapeClass {
        name: "decode-q8",
        what: "one row, 8 bits",
        lattice: &[
            &[1, 1, 64, 4, 2, 16, 8, 8, 32, 1, 16, 0, 5],
            &[1, 1, 128, 2, 1, 128, 8, 8, 64, 1, 128, 0, 33],
            &[1, 1, 96, 3, 3, 40, 8, 8, 32, 0, 40, 1, 1],
        ],
        timed: &[1, 1, 384, 6, 2, 64, 8, 8, 64, 1, 64, 0, 40],
    },
    ShapeClass {
        name: "prefill-q4",
        what: "several rows, 4 bits",
        lattice: &[
            &[1, 2, 64, 2, 1, 16, 4, 4, 32, 1, 16, 0, 0],
            &[1, 7, 128, 4, 2, 32, 4, 4, 64, 1, 32, 0, 9],
            &[2, 5, 64, 3, 1, 24, 4, 4, 32, 1, 12, 0, 2],
            &[1, 9, 96, 2, 2, 64, 4, 4, 32, 0, 64, 0, 0],
            &[3, 3, 64, 4, 4, 8, 4, 4, 64, 1, 8, 1, 11],
            &[1, 33, 128, 6, 2, 64, 4, 4, 128, 1, 64, 0, 4],
        ],
        timed: &[1, 32, 128, 4, 2, 32, 4, 4, 64, 1, 32, 0, 40],
    },
    ShapeClass {
        name: "prefill-q8",
        what: "several rows, 8 bits",
        lattice: &[
            &[1, 3, 64, 2, 1, 16, 8, 8, 32, 1, 16, 0, 0],
            &[2, 8, 128, 4, 2, 32, 8, 8, 64, 1, 32, 0, 9],
            &[1, 17, 96, 2, 2, 48, 8, 8, 32, 0, 24, 1, 3],
        ],
        timed: &[1, 32, 128, 4, 2, 32, 8, 8, 64, 1, 32, 0, 40],
    },
    ShapeClass {
        name: "mixed",
        what: "projections of different bits, or neither of 4 nor of 8",
        lattice: &[
            &[1, 1, 64, 2, 1, 32, 4, 8, 64, 1, 32, 0, 6],
            &[1, 4, 96, 2, 1, 16, 3, 6, 32, 1, 16, 0, 1],
            &[2, 3, 64, 2, 2, 16, 5, 5, 32, 0, 16, 0, 8],
        ],
        timed: &[1, 16, 128, 4, 2, 32, 4, 8, 64, 1, 32, 0, 40],
    },
];

/// The trial of a seed: seeds in turn draw numbers of each kind.
pub(super) fn trial(sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
    drawn(sizes, dtype, seed, Kind::ALL[seed as usize % Kind::ALL.len()])
}

fn drawn(sizes: &[usize], dtype: Dtype, seed: u64, kind: Kind) -> Trial {
    let &[
        batch,
        rows,
        cols,
        heads,
        kv_heads,
        d,
        bits,
        v_bits,
        group,
        normed,
        dims,
        traditional,
        offset,
    ] = sizes
    else {
        unreachable!("lattices have an entry for each of SIZES")
    };
    let mut draw = Draw::new(seed);
    let scale = 1.0 / (cols as f32).sqrt();
    let mut operands = vec![draw.operand("x", &[batch, rows, cols], dtype, kind, 1.0)];
    let projections = [
        (["q_w", "q_scales", "q_biases"], heads, bits),
        (["k_w", "k_scales", "k_biases"], kv_heads, bits),
        (["v_w", "v_scales", "v_biases"], kv_heads, v_bits),
    ];
    for (names, heads, bits) in projections {
        let shape = (heads * d, cols);
        operands.extend(draw.packed(names, shape, (bits as u32, group), dtype, scale));
    }
    let mut params = vec![("theta", 10_000.0), ("rope_scale", 1.0)];
    if normed == 1 {
        let norms =
            ["q_norm", "k_norm"].map(|name| draw.operand(name, &[d], dtype, Kind::Normal, 1.0));
        operands.extend(norms);
        params.push(("eps", 1e-3));
    }
    let numbers = [
        ("q_bits", bits),
        ("q_group", group),
        ("k_bits", bits),
        ("k_group", group),
        ("v_bits", v_bits),
        ("v_group", group),
        ("heads", heads),
        ("kv_heads", kv_heads),
        ("head_dim", d),
        ("dims", dims),
        ("traditional", traditional),
        ("offset", offset),
    ];
    params.extend(numbers.map(|(name, number)| (name, number as f64)));
    let name = SIZES.iter().zip(sizes).map(|(name, size)| format!("{name}={size}"));
    let name = format!("{}/{}", name.collect::<Vec<_>>().join(","), kind.name());
    Trial { name, operands, params: Params(params) }
}

/// Numbers that are hard to add, positions that are scaled, and x as a view with gaps.
pub(super) fn probes(class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
    let near = |trial| Probe { trial, expected: Expected::Reference };
    let sizes = class.lattice[1];
    let kinds = [Kind::Ones, Kind::Edge];
    let mut probes: Vec<Probe> =
        kinds.into_iter().map(|kind| near(drawn(sizes, dtype, 21, kind))).collect();
    let mut scaled = drawn(sizes, dtype, 22, Kind::Normal);
    for (name, number) in &mut scaled.params.0 {
        match *name {
            "rope_scale" => *number = 0.25,
            "theta" => *number = 1e6,
            _ => {}
        }
    }
    scaled.name.push_str("/scaled");
    probes.push(near(scaled));
    let whole = drawn(sizes, dtype, 23, Kind::Normal);
    let trial = crate::gated::with_gaps(whole.clone(), &["x"]);
    probes.push(Probe { trial, expected: Expected::SameAs(Box::new(whole)) });
    probes
}
