//! Element by element, with tails and strides.

use mlx_parity_oracles::ops;
use mlx_parity_oracles::{Answer, Tensor64};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::output;
use crate::support::data::{Numbers, wide};
use crate::support::{Case, Expected, Subject, View, of_type};

pub const SWIGLU: Subject = Subject::new("swiglu", &["a", "b"], swiglu);

pub const STRIDED_SUM: Subject =
    Subject { row_contiguous: false, ..Subject::new("strided_sum", &["a", "b"], strided_sum) };

fn swiglu(dtype: Dtype) -> Vec<Case> {
    [1, 3, 4, 63, 257, 1025].into_iter().map(|n| swiglu_case(dtype, n)).collect()
}

fn swiglu_case(dtype: Dtype, n: usize) -> Case {
    let mut numbers = Numbers::new(n as u64);
    let a = numbers.tensor(dtype, &[n], -14.0, 14.0);
    let b = numbers.tensor(dtype, &[n], -2.0, 2.0);
    let gated = ops::silu(&wide(&a));
    let product = |x: &Tensor64| {
        let data = x.data().iter().zip(wide(&b).data()).map(|(x, y)| x * y).collect::<Vec<_>>();
        Tensor64::new([n], data).expect("the shape of a")
    };
    let answer =
        Answer { value: product(&gated.value), condition: product(&gated.condition).map(f64::abs) };
    Case {
        label: format!("n={n}"),
        inputs: vec![a, b],
        views: Vec::new(),
        outputs: output(dtype, &[n]),
        template: of_type(dtype),
        grid: [n.div_ceil(4) as u32, 1, 1],
        group: [64, 1, 1],
        init_value: None,
        expected: vec![Expected::Near { answer, roundoffs: 8.0 }],
    }
}

/// A transposed operand beside a sliced and a reversed one.
fn strided_sum(dtype: Dtype) -> Vec<Case> {
    let transposed = View { shape: vec![5, 7], strides: vec![1, 5], offset: 0 };
    let sliced = View { shape: vec![5, 7], strides: vec![16, 2], offset: 1 };
    let reversed = View { shape: vec![5, 7], strides: vec![7, -1], offset: 6 };
    let repeated = View { shape: vec![5, 7], strides: vec![0, 1], offset: 3 };
    vec![
        strided_case(dtype, "transposed+sliced", &[transposed, sliced]),
        strided_case(dtype, "reversed+repeated", &[reversed, repeated]),
    ]
}

fn strided_case(dtype: Dtype, label: &str, views: &[View; 2]) -> Case {
    let mut numbers = Numbers::new(5);
    let storages = [(); 2].map(|()| numbers.tensor(dtype, &[5 * 16], -4.0, 4.0));
    let (a, b) = (read(&storages[0], &views[0]), read(&storages[1], &views[1]));
    let answer = ops::add(&a, &b).expect("equal shapes");
    Case {
        label: label.to_owned(),
        inputs: storages.to_vec(),
        outputs: output(dtype, &views[0].shape),
        views: views.to_vec(),
        template: of_type(dtype),
        grid: [35, 1, 1],
        group: [32, 1, 1],
        init_value: None,
        expected: vec![Expected::Near { answer, roundoffs: 1.0 }],
    }
}

/// The elements of a view, row-major.
fn read(storage: &HostTensor, view: &View) -> Tensor64 {
    let (rows, columns) = (view.shape[0] as i64, view.shape[1] as i64);
    let at = |row, column| view.offset as i64 + row * view.strides[0] + column * view.strides[1];
    let data = (0..rows)
        .flat_map(|row| (0..columns).map(move |column| at(row, column)))
        .map(|at| storage.value_at(usize::try_from(at).expect("an index within the storage")))
        .collect();
    Tensor64::new(view.shape.clone(), data).expect("as many elements as the view has")
}
