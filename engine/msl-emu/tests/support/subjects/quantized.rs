//! Codes of four bits with a scale and a bias a group.

use mlx_parity_oracles::Tensor64;
use mlx_parity_oracles::ops::{self, Mode, QuantizeRule, Quantized, Scales};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::output;
use crate::support::data::{Numbers, wide};
use crate::support::{Case, Expected, Subject, of_type_and};

/// Columns that share a scale.
pub const GROUP: usize = 32;

pub const QMV4: Subject = Subject::new("qmv4", &["x", "w", "scales", "biases"], qmv4);

/// A matrix quantized as MLX does, its scales and biases rounded to a dtype: the operands of a kernel, and what
/// they stand for.
pub struct Packed {
    pub words: HostTensor,
    pub scales: HostTensor,
    pub biases: HostTensor,
    pub meaning: Quantized,
}

/// Quantizes random values of this shape.
pub fn packed(numbers: &mut Numbers, dtype: Dtype, shape: &[usize]) -> Packed {
    let mode = Mode::Affine { bits: 4, group_size: GROUP };
    let values = wide(&numbers.tensor(dtype, shape, -1.0, 1.0));
    let exact = ops::quantize(&values, mode, QuantizeRule::MLX).expect("whole groups");
    let Scales::Affine { scales, biases } = exact.scales() else { unreachable!("affine scales") };
    let rounded = |of: &Tensor64| of.to_host(dtype).expect("a float dtype");
    let (scales, biases) = (rounded(scales), rounded(biases));
    let words = exact.words();
    let meaning = Quantized::new(
        mode,
        words.clone(),
        Scales::Affine { scales: wide(&scales), biases: wide(&biases) },
    )
    .expect("the same shapes");
    let words = HostTensor::from_u32(words.shape(), words.data()).expect("the same words");
    Packed { words, scales, biases, meaning }
}

fn qmv4(dtype: Dtype) -> Vec<Case> {
    [[1, 32], [3, 64], [5, 288], [2, 1024]].map(|shape| qmv4_case(dtype, shape)).into()
}

fn qmv4_case(dtype: Dtype, [rows, columns]: [usize; 2]) -> Case {
    let mut numbers = Numbers::new(columns as u64);
    let x = numbers.tensor(dtype, &[columns], -1.0, 1.0);
    let w = packed(&mut numbers, dtype, &[rows, columns]);
    let row = wide(&x).reshape([1, columns]).expect("one row");
    let mut answer = ops::quantized_matmul(&row, &w.meaning, true).expect("matching columns");
    answer.value = answer.value.reshape([rows]).expect("one row");
    answer.condition = answer.condition.reshape([rows]).expect("one row");
    // Eight products and two sums of a word, its scale and bias, then the words of a lane and the lanes.
    let roundoffs = 12.0 + columns.div_ceil(256) as f64 + 5.0;
    Case {
        label: format!("{rows}x{columns}"),
        inputs: vec![x, w.words, w.scales, w.biases],
        views: Vec::new(),
        outputs: output(dtype, &[rows]),
        template: of_type_and(dtype, &[("GROUP", GROUP as i32)]),
        grid: [32, rows as u32, 1],
        group: [32, 2, 1],
        init_value: None,
        expected: vec![Expected::Near { answer, roundoffs }],
    }
}
