//! Products of matrices.

use mlx_parity_oracles::ops;
use mlx_parity_tensor::Dtype;

use super::output;
use crate::support::data::{Numbers, wide};
use crate::support::{Case, Expected, Subject, of_type};

pub const TILED: Subject = Subject::new("matmul_tiled", &["a", "b"], tiled);

pub const SIMDGROUP: Subject = Subject {
    header: "#include <metal_simdgroup_matrix>\n",
    ..Subject::new("matmul_simdgroup", &["a", "b"], simdgroup)
};

/// m, k and n about a tile of 16 and a slice of 8.
const SHAPES: [[usize; 3]; 5] = [[1, 1, 1], [16, 16, 16], [17, 9, 15], [3, 65, 33], [31, 40, 8]];

/// A product made of tiles of so many rows and columns, by groups of these threads, `across` of them in a row.
pub fn product(
    dtype: Dtype,
    [m, k, n]: [usize; 3],
    group: [u32; 3],
    tile: [usize; 2],
    across: u32,
) -> Case {
    let mut numbers = Numbers::new((m * 10_000 + k * 100 + n) as u64);
    let a = numbers.tensor(dtype, &[m, k], -1.0, 1.0);
    let b = numbers.tensor(dtype, &[k, n], -1.0, 1.0);
    let answer = ops::matmul(&wide(&a), &wide(&b)).expect("matching inner sizes");
    let (down, along) = (m.div_ceil(tile[0]) as u32, n.div_ceil(tile[1]) as u32);
    Case {
        label: format!("{m}x{k}x{n}"),
        inputs: vec![a, b],
        views: Vec::new(),
        outputs: output(dtype, &[m, n]),
        template: of_type(dtype),
        grid: [across * along, group[1] * down, 1],
        group,
        init_value: None,
        expected: vec![Expected::Near { answer, roundoffs: k as f64 + 1.0 }],
    }
}

fn tiled(dtype: Dtype) -> Vec<Case> {
    SHAPES.into_iter().map(|shape| product(dtype, shape, [16, 8, 1], [16, 16], 16)).collect()
}

fn simdgroup(dtype: Dtype) -> Vec<Case> {
    SHAPES.into_iter().map(|shape| product(dtype, shape, [128, 1, 1], [16, 16], 128)).collect()
}
