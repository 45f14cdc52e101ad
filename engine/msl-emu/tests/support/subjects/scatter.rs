//! Atomics.

use mlx_parity_oracles::ops;
use mlx_parity_oracles::{IntTensor, Tensor64};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::output;
use crate::support::data::{Numbers, wide};
use crate::support::{Case, Expected, Subject, of_type_and};

pub const HISTOGRAM: Subject =
    Subject { atomic: true, ..Subject::new("histogram", &["x"], histogram) };

pub const SCATTER_ADD: Subject = Subject {
    atomic: true,
    dtypes: &[Dtype::F32],
    ..Subject::new("scatter_add", &["indices", "updates"], scatter_add)
};

const BINS: usize = 16;

fn histogram(dtype: Dtype) -> Vec<Case> {
    [1, 63, 64, 65, 1000].map(|n| histogram_case(dtype, n)).into()
}

fn histogram_case(dtype: Dtype, n: usize) -> Case {
    let x = Numbers::new(n as u64).tensor(dtype, &[n], 0.0, 0.99);
    // A power of two of bins: the product is exact.
    let bins = wide(&x).map(|v| ((v * BINS as f64) as i64).min(BINS as i64 - 1));
    let counts =
        ops::scatter_add(&Tensor64::full([BINS], 0.0), &bins, &Tensor64::full([n], 1.0), 0);
    let counts = counts.expect("bins within the histogram").value;
    Case {
        label: format!("n={n}"),
        inputs: vec![x],
        views: Vec::new(),
        outputs: output(Dtype::U32, &[BINS]),
        template: of_type_and(dtype, &[("BINS", BINS as i32)]),
        grid: [128, 1, 1],
        group: [64, 1, 1],
        init_value: Some(0.0),
        expected: vec![Expected::Exact(counts.to_host(Dtype::U32).expect("counts"))],
    }
}

fn scatter_add(_: Dtype) -> Vec<Case> {
    [[1, 1], [100, 7], [300, 3]].map(|[n, places]| scatter_case(n, places)).into()
}

fn scatter_case(n: usize, places: usize) -> Case {
    let mut numbers = Numbers::new(n as u64);
    let indices: Vec<u32> = (0..n).map(|_| numbers.below(places) as u32).collect();
    let updates = numbers.tensor(Dtype::F32, &[n], -1.0, 1.0);
    let at = IntTensor::vector(indices.iter().map(|&i| i64::from(i)).collect::<Vec<_>>());
    let answer = ops::scatter_add(&Tensor64::full([places], 0.0), &at, &wide(&updates), 0)
        .expect("indices within the output");
    Case {
        label: format!("{n} into {places}"),
        inputs: vec![HostTensor::from_u32([n], &indices).expect("one index each"), updates],
        views: Vec::new(),
        outputs: output(Dtype::F32, &[places]),
        template: Vec::new(),
        grid: [n as u32, 1, 1],
        group: [64, 1, 1],
        init_value: Some(0.0),
        expected: vec![Expected::Near { answer, roundoffs: n as f64 }],
    }
}
