//! Along rows.

use mlx_parity_oracles::ops::{self, Axes, NormWeight, Precision, Scan};
use mlx_parity_oracles::{Answer, IntTensor};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::output;
use crate::support::data::{Numbers, wide};
use crate::support::{Case, Expected, Subject, of_type};

pub const ROW_SUM_SIMD: Subject = Subject::new("row_sum_simd", &["x"], row_sum_simd);
pub const ROW_SUM_THREADGROUP: Subject =
    Subject::new("row_sum_threadgroup", &["x"], row_sum_threadgroup);
pub const SOFTMAX: Subject = Subject::new("softmax", &["x"], softmax);
pub const RMS_NORM: Subject = Subject::new("rms_norm", &["x", "weight", "eps"], rms_norm);
pub const ARGMAX: Subject = Subject::new("argmax", &["x"], argmax);
pub const PREFIX_SCAN: Subject = Subject::new("prefix_scan", &["x"], prefix_scan);

/// Rows and widths about the widths of a simdgroup and of a group.
const SHAPES: [[usize; 2]; 7] = [[1, 1], [3, 31], [5, 32], [2, 33], [3, 127], [2, 129], [4, 513]];

/// A case of one input by rows; `threads` along each row.
fn by_rows(x: HostTensor, out: &[usize], threads: u32, expected: Expected) -> Case {
    let dtype = x.dtype();
    Case {
        label: format!("{:?}", x.shape()),
        grid: [threads, x.shape()[0] as u32, 1],
        group: [threads, 1, 1],
        inputs: vec![x],
        views: Vec::new(),
        outputs: output(dtype, out),
        template: of_type(dtype),
        init_value: None,
        expected: vec![expected],
    }
}

fn inputs(dtype: Dtype, low: f64, high: f64) -> impl Iterator<Item = HostTensor> {
    SHAPES.into_iter().map(move |shape| {
        Numbers::new((shape[0] * 1000 + shape[1]) as u64).tensor(dtype, &shape, low, high)
    })
}

fn sum_of(x: &HostTensor) -> Answer {
    ops::sum(&wide(x), Axes::Of(&[-1]), false).expect("rows to sum")
}

fn row_sum_simd(dtype: Dtype) -> Vec<Case> {
    let case = |x: HostTensor| {
        let roundoffs = x.shape()[1].div_ceil(32) as f64 + 5.0;
        let expected = Expected::Near { answer: sum_of(&x), roundoffs };
        let rows = x.shape()[0];
        Case { group: [32, 4, 1], ..by_rows(x, &[rows], 32, expected) }
    };
    inputs(dtype, -1.0, 1.0).map(case).collect()
}

fn row_sum_threadgroup(dtype: Dtype) -> Vec<Case> {
    let case = |x: HostTensor| {
        let roundoffs = x.shape()[1].div_ceil(128) as f64 + 7.0;
        let expected = Expected::Near { answer: sum_of(&x), roundoffs };
        let rows = x.shape()[0];
        by_rows(x, &[rows], 128, expected)
    };
    inputs(dtype, -1.0, 1.0).map(case).collect()
}

/// Each of a thread's elements rescales its sum: three operations; ten more to join and divide.
fn softmax(dtype: Dtype) -> Vec<Case> {
    let case = |x: HostTensor| {
        let roundoffs = 3.0 * x.shape()[1].div_ceil(128) as f64 + 10.0;
        let answer = ops::softmax(&wide(&x), -1, Precision::Plain).expect("rows");
        let shape = x.shape().to_vec();
        by_rows(x, &shape, 128, Expected::Near { answer, roundoffs })
    };
    inputs(dtype, -20.0, 20.0).map(case).collect()
}

fn rms_norm(dtype: Dtype) -> Vec<Case> {
    inputs(dtype, -3.0, 3.0).map(rms_norm_case).collect()
}

fn rms_norm_case(x: HostTensor) -> Case {
    let (dtype, shape) = (x.dtype(), x.shape().to_vec());
    let weight = Numbers::new(7).tensor(dtype, &shape[1..], 0.5, 1.5);
    let eps = HostTensor::from_f32(Vec::new(), &[1e-5]).expect("a scalar");
    let answer = ops::rms_norm(&wide(&x), NormWeight::Plain(&wide(&weight)), f64::from(1e-5_f32))
        .expect("a weight for each column");
    let roundoffs = shape[1].div_ceil(128) as f64 + 12.0;
    let mut case = by_rows(x, &shape, 128, Expected::Near { answer, roundoffs });
    case.inputs.extend([weight, eps]);
    case
}

/// Few distinct values, the largest of them twice: at two thirds of a row and at its end.
fn argmax(dtype: Dtype) -> Vec<Case> {
    let case = |shape: [usize; 2]| {
        let mut numbers = Numbers::new(shape[1] as u64);
        let mut values: Vec<f64> =
            (0..shape[0] * shape[1]).map(|_| numbers.below(5) as f64 - 3.0).collect();
        for row in values.chunks_mut(shape[1]) {
            row[shape[1] * 2 / 3] = 2.0;
            row[shape[1] - 1] = 2.0;
        }
        let x = HostTensor::from_f64_as(dtype, shape, &values).expect("small integers");
        let places = ops::argmax(&wide(&x), -1, false).expect("rows");
        let expected = Expected::Exact(to_u32(&places));
        let mut case = by_rows(x, &[shape[0]], 64, expected);
        case.outputs = output(Dtype::U32, &[shape[0]]);
        case
    };
    SHAPES.into_iter().map(case).collect()
}

fn to_u32(places: &IntTensor) -> HostTensor {
    let words: Vec<u32> =
        places.data().iter().map(|&i| u32::try_from(i).expect("a position")).collect();
    HostTensor::from_u32(places.shape(), &words).expect("as many positions as rows")
}

/// 31 sums in a simdgroup, four across, and one a block.
fn prefix_scan(dtype: Dtype) -> Vec<Case> {
    let case = |x: HostTensor| {
        let roundoffs = x.shape()[1].div_ceil(128) as f64 + 36.0;
        let answer = ops::cumsum(&wide(&x), Scan::default()).expect("rows");
        let shape = x.shape().to_vec();
        by_rows(x, &shape, 128, Expected::Near { answer, roundoffs })
    };
    inputs(dtype, -1.0, 1.0).map(case).collect()
}
