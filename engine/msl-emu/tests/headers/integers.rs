//! Integer functions against the host's.

use mlx_parity_tensor::{Dtype, HostTensor};

use crate::answers;
use crate::support::data::Numbers;

type Function = (&'static str, fn(i32, i32) -> i64);

/// Results that are unsigned are read as the same bits of int.
const FUNCTIONS: [Function; 20] = [
    ("abs(x)", |x, _| i64::from(x.wrapping_abs())),
    ("int(absdiff(x, y))", |x, y| i64::from(x.abs_diff(y) as i32)),
    ("addsat(x, y)", |x, y| i64::from(x.saturating_add(y))),
    ("subsat(x, y)", |x, y| i64::from(x.saturating_sub(y))),
    ("hadd(x, y)", |x, y| (i64::from(x) + i64::from(y)) >> 1),
    ("rhadd(x, y)", |x, y| (i64::from(x) + i64::from(y) + 1) >> 1),
    ("mulhi(x, y)", |x, y| (i64::from(x) * i64::from(y)) >> 32),
    ("int(mulhi(uint(x), uint(y)))", |x, y| {
        i64::from((u64::from(x as u32) * u64::from(y as u32) >> 32) as i32)
    }),
    ("popcount(x)", |x, _| i64::from(x.count_ones())),
    ("clz(x)", |x, _| i64::from(x.leading_zeros())),
    ("ctz(x)", |x, _| i64::from(x.trailing_zeros())),
    ("int(clz(ushort(x)))", |x, _| i64::from((x as u16).leading_zeros())),
    ("rotate(x, y)", |x, y| i64::from(x.rotate_left(y as u32 % 32))),
    ("int(reverse_bits(uint(x)))", |x, _| i64::from(x.reverse_bits())),
    ("extract_bits(x, 5u, 7u)", |x, _| i64::from(x << 20 >> 25)),
    ("int(extract_bits(uint(x), 5u, 7u))", |x, _| i64::from(x as u32 >> 5 & 0x7f)),
    ("insert_bits(x, y, 5u, 7u)", |x, y| i64::from(x & !0xfe0 | (y & 0x7f) << 5)),
    ("median3(x, y, 9)", |x, y| i64::from(x.max(y).min(x.min(y).max(9)))),
    ("clamp(x, -100, 100)", |x, _| i64::from(x.clamp(-100, 100))),
    ("mul24(x >> 8, 3)", |x, _| i64::from((x >> 8).wrapping_mul(3))),
];

#[test]
fn integers_are_as_the_host_has_them() {
    let edges = [0, 1, -1, i32::MAX, -i32::MAX, 255, -256, 1 << 20];
    let mut numbers = Numbers::new(21);
    let mut random = |_| (numbers.bits() >> 7) as i32;
    let x: Vec<i32> = edges.into_iter().chain((0..56).map(&mut random)).collect();
    let y: Vec<i32> = (0..60).map(&mut random).chain([1, 31, -3, 8]).collect();
    let tensor = |of: &[i32]| HostTensor::from_i32([64], of).expect("64 values");
    let mut body =
        "const uint i = thread_position_in_grid.x;\nconst int x = xs[i];\nconst int y = ys[i];\n"
            .to_owned();
    for (row, (expression, _)) in FUNCTIONS.iter().enumerate() {
        body += &format!("out[{row} * 64 + i] = {expression};\n");
    }
    let inputs = [("xs", &tensor(&x)), ("ys", &tensor(&y))];
    let found = answers(&body, &inputs, Dtype::I32, &[FUNCTIONS.len(), 64], 64).to_f64();
    for (row, (expression, wanted)) in FUNCTIONS.iter().enumerate() {
        for i in 0..64 {
            let wanted = wanted(x[i], y[i]) as f64;
            assert_eq!(found[row * 64 + i], wanted, "{expression} of {} and {}", x[i], y[i]);
        }
    }
}
