//! Rotary position embedding with an offset for each item.

use mlx_parity_oracles::ops::rope::{Offsets, Rope, RopeTable, rope};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::output;
use crate::support::data::{Numbers, wide};
use crate::support::{Case, Expected, Subject, of_type};

pub const ROPE: Subject = Subject::new("rope", &["x", "offsets", "base"], cases);

const BASE: f64 = 10_000.0;

fn cases(dtype: Dtype) -> Vec<Case> {
    [[1, 1, 1, 2], [2, 3, 5, 64], [3, 2, 33, 20]].map(|shape| case(dtype, shape)).into()
}

fn case(dtype: Dtype, shape: [usize; 4]) -> Case {
    let [batch, heads, tokens, width] = shape;
    let x = Numbers::new(tokens as u64).tensor(dtype, &shape, -2.0, 2.0);
    let offsets: Vec<i32> = (0..batch as i32).map(|item| 7 + 100 * item).collect();
    let firsts: Vec<i64> = offsets.iter().map(|&offset| i64::from(offset)).collect();
    let periods = (0..width / 2).map(|i| BASE.powf(2.0 * i as f64 / width as f64)).collect();
    let table = RopeTable::of_periods(periods);
    let parameters =
        Rope { dims: width, traditional: false, table: &table, offsets: Offsets::PerItem(&firsts) };
    let answer = rope(&wide(&x), &parameters).expect("an offset for each item");
    Case {
        label: format!("{shape:?}"),
        inputs: vec![
            x,
            HostTensor::from_i32([batch], &offsets).expect("an offset for each item"),
            HostTensor::from_f32(Vec::new(), &[BASE as f32]).expect("a scalar"),
        ],
        views: Vec::new(),
        outputs: output(dtype, &shape),
        template: of_type(dtype),
        grid: [width as u32 / 2, tokens as u32, (batch * heads) as u32],
        group: [width.min(16) as u32 / 2, 4, 2],
        init_value: None,
        // The exponent of a frequency, up to log2(base), rounds three times before it is raised.
        expected: vec![Expected::Near { answer, roundoffs: 3.0 * BASE.log2() * 0.7 + 6.0 }],
    }
}
