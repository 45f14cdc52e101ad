//! Functions of simdgroups and quadgroups, and matrices spread over a simdgroup.

use mlx_parity_tensor::{Dtype, HostTensor};

use crate::answers;

/// A body's expression for each lane, and what lane `i` of 32 must get when lane `j` holds `x(j)`.
type Row = (&'static str, fn(usize) -> i64);

fn x(lane: usize) -> i64 {
    (lane as i64 * 7 + 3) % 11
}

fn quad(lane: usize) -> usize {
    lane / 4 * 4
}

const ROWS: [Row; 37] = [
    ("simd_sum(x)", |_| (0..32).map(x).sum()),
    ("simd_product(x % 2 + 1)", |_| (0..32).map(|j| x(j) % 2 + 1).product()),
    ("simd_max(x)", |_| (0..32).map(x).max().unwrap()),
    ("simd_min(x)", |_| (0..32).map(x).min().unwrap()),
    ("simd_and(x | 4)", |_| (0..32).map(|j| x(j) | 4).fold(-1, |a, b| a & b)),
    ("simd_or(x & 5)", |_| (0..32).map(|j| x(j) & 5).fold(0, |a, b| a | b)),
    ("simd_xor(x)", |_| (0..32).map(x).fold(0, |a, b| a ^ b)),
    ("simd_prefix_inclusive_sum(x)", |i| (0..=i).map(x).sum()),
    ("simd_prefix_exclusive_sum(x)", |i| (0..i).map(x).sum()),
    ("simd_prefix_inclusive_product(lane % 8 == 3 ? 2 : 1)", |i| {
        1 << (0..=i).filter(|j| j % 8 == 3).count()
    }),
    ("simd_prefix_exclusive_product(lane % 8 == 3 ? 2 : 1)", |i| {
        1 << (0..i).filter(|j| j % 8 == 3).count()
    }),
    ("simd_shuffle(x, (lane * 5 + 1) % 32)", |i| x((i * 5 + 1) % 32)),
    ("simd_shuffle_xor(x, 9)", |i| x(i ^ 9)),
    ("simd_shuffle_up(x, 3)", |i| if i < 3 { x(i) } else { x(i - 3) }),
    ("simd_shuffle_down(x, 3)", |i| if i > 28 { x(i) } else { x(i + 3) }),
    ("simd_shuffle_rotate_up(x, 3)", |i| x((i + 29) % 32)),
    ("simd_shuffle_rotate_down(x, 3)", |i| x((i + 3) % 32)),
    ("simd_shuffle_and_fill_up(x, -x, 3)", |i| if i < 3 { -x(i + 29) } else { x(i - 3) }),
    ("simd_shuffle_and_fill_down(x, -x, 3)", |i| if i > 28 { -x(i - 29) } else { x(i + 3) }),
    ("simd_broadcast(x, 9)", |_| x(9)),
    ("simd_broadcast_first(x)", |_| x(0)),
    ("int(uint(simd_vote::vote_t(simd_ballot(x > 5))))", |_| {
        i64::from((0..32).filter(|&j| x(j) > 5).fold(0_u32, |m, j| m | 1 << j) as i32)
    }),
    ("int(simd_all(x < 11))", |_| 1),
    ("int(simd_all(x < 10))", |_| 0),
    ("int(simd_any(x == 10))", |_| 1),
    ("int(simd_any(x == 11))", |_| 0),
    ("int(simd_is_first())", |i| i64::from(i == 0)),
    ("simd_shuffle_xor(int2(x, -x), 2).y", |i| -x(i ^ 2)),
    ("quad_sum(x)", |i| (quad(i)..quad(i) + 4).map(x).sum()),
    ("quad_max(x)", |i| (quad(i)..quad(i) + 4).map(x).max().unwrap()),
    ("quad_broadcast(x, 2)", |i| x(quad(i) + 2)),
    ("quad_shuffle_xor(x, 1)", |i| x(i ^ 1)),
    ("quad_shuffle_up(x, 1)", |i| if i % 4 == 0 { x(i) } else { x(i - 1) }),
    ("quad_shuffle_down(x, 1)", |i| if i % 4 == 3 { x(i) } else { x(i + 1) }),
    ("quad_shuffle(x, 3 - lane % 4)", |i| x(quad(i) + 3 - i % 4)),
    ("quad_prefix_exclusive_sum(x)", |i| (quad(i)..i).map(x).sum()),
    ("int(quad_any(lane == 5))", |i| i64::from(quad(i) == 4)),
];

#[test]
fn lanes_see_each_other() {
    let mut body =
        "const int lane = int(thread_index_in_simdgroup);\nconst int x = (lane * 7 + 3) % 11;\n"
            .to_owned();
    for (row, (expression, _)) in ROWS.iter().enumerate() {
        body += &format!("out[{row} * 32 + lane] = {expression};\n");
    }
    let found = answers(&body, &[], Dtype::I32, &[ROWS.len(), 32], 32).to_f64();
    for (row, (expression, wanted)) in ROWS.iter().enumerate() {
        let wanted: Vec<f64> = (0..32).map(|i| wanted(i) as f64).collect();
        assert_eq!(found[row * 32..][..32], wanted, "{expression}");
    }
}

/// A simdgroup of ten lanes: those that are not there count for nothing.
#[test]
fn a_short_simdgroup_has_only_its_own_lanes() {
    let body = "const int lane = int(thread_index_in_simdgroup);\n\
                out[lane] = simd_sum(lane + 1) + 100 * simd_max(-lane) + simd_prefix_inclusive_sum(1000);";
    let found = answers(body, &[], Dtype::I32, &[10], 10);
    let wanted: Vec<f64> = (0..10).map(|i| 55.0 + 1000.0 * f64::from(i + 1)).collect();
    assert_eq!(found.to_f64(), wanted);
}

/// Element (row, column) of each lane, as `mlx/backend/metal/kernels/steel/gemm/mma.h` computes them.
#[test]
fn matrices_lie_in_lanes_as_steel_kernels_expect() {
    let values: Vec<f32> = (0..64_u8).map(f32::from).collect();
    let x = HostTensor::from_f32([8, 8], &values).expect("64 values");
    let body = "simdgroup_matrix<float, 8, 8> a, b;\n\
                simdgroup_load(a, x, 8);\nsimdgroup_load(b, x, 8, ulong2(0, 0), true);\n\
                for (uint j = 0; j < 2; j++) {\n\
                  out[thread_index_in_simdgroup * 4 + j] = a.thread_elements()[j];\n\
                  out[thread_index_in_simdgroup * 4 + 2 + j] = b.thread_elements()[j];\n}";
    let found = answers(body, &[("x", &x)], Dtype::F32, &[32, 4], 32).to_f64();
    for lane in 0..32 {
        let quad = lane / 4;
        let row = (quad & 4) + (lane / 2) % 4;
        let column = (quad & 2) * 2 + (lane % 2) * 2;
        let at = |row: usize, column: usize| f64::from(values[row * 8 + column]);
        let wanted = [at(row, column), at(row, column + 1), at(column, row), at(column + 1, row)];
        assert_eq!(found[lane * 4..][..4], wanted, "lane {lane}");
    }
}

#[test]
fn matrices_multiply_and_accumulate() {
    let a: Vec<f32> = (0..64_u8).map(|i| f32::from(i % 7) - 3.0).collect();
    let b: Vec<f32> = (0..64_u8).map(|i| f32::from(i % 5) - 2.0).collect();
    let tensor = |of: &[f32]| HostTensor::from_f32([8, 8], of).expect("64 values");
    let body = "simdgroup_float8x8 left, right;\nsimdgroup_float8x8 sum(2.0f);\n\
                simdgroup_load(left, a, 8);\nsimdgroup_load(right, b, 8);\n\
                simdgroup_multiply_accumulate(sum, left, right, sum);\nsimdgroup_store(sum, out, 8);";
    let found =
        answers(body, &[("a", &tensor(&a)), ("b", &tensor(&b))], Dtype::F32, &[8, 8], 32).to_f64();
    for row in 0..8 {
        for column in 0..8 {
            let product: f32 = (0..8).map(|k| a[row * 8 + k] * b[k * 8 + column]).sum();
            let wanted = product + if row == column { 2.0 } else { 0.0 };
            assert_eq!(found[row * 8 + column], f64::from(wanted), "({row}, {column})");
        }
    }
}
