//! Products of gathered matrices, as expert layers use them.

use super::matmul::split_matrix;
use super::quantize::{Quantized, dequantize};
use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::{IntTensor, Tensor64, broadcast_shapes, resolve_index};

/// For each pair of indices, broadcast together, the product of matrix `lhs` of `a` and matrix
/// `rhs` of `b`; the result is `[indices.., m, n]`. Indices count matrices of the flattened leading
/// axes; `None` counts them all in order.
pub fn gather_mm(
    a: &Tensor64,
    b: &Tensor64,
    lhs: Option<&IntTensor>,
    rhs: Option<&IntTensor>,
) -> Result<Answer, OracleError> {
    let op = "gather_mm";
    let (a_batch, m, k) = split_matrix(op, a.shape())?;
    let (b_batch, b_k, n) = split_matrix(op, b.shape())?;
    if k != b_k {
        return Err(OracleError::shape(op, b.shape(), format!("one with {k} rows")));
    }
    let lhs = lhs.cloned().unwrap_or_else(|| in_order(a_batch));
    let rhs = rhs.cloned().unwrap_or_else(|| in_order(b_batch));
    let batch = broadcast_shapes(op, lhs.shape(), rhs.shape())?;
    let a = picked(op, a, &lhs.broadcast_to(&batch)?, m * k)?;
    let b = picked(op, b, &rhs.broadcast_to(&batch)?, k * n)?;
    let shape = |rows, columns| [&batch[..], &[rows, columns]].concat();
    super::matmul(&a.reshape(shape(m, k))?, &b.reshape(shape(k, n))?)
}

fn in_order(batch: &[usize]) -> IntTensor {
    let count: usize = batch.iter().product();
    IntTensor::trusted(batch.to_vec(), (0..count as i64).collect())
}

fn picked(
    op: &'static str,
    x: &Tensor64,
    indices: &IntTensor,
    size: usize,
) -> Result<Tensor64, OracleError> {
    let count = x.len() / size.max(1);
    let mut data = Vec::with_capacity(indices.len() * size);
    for &index in indices.data() {
        let at = resolve_index(op, index, count)?;
        data.extend_from_slice(&x.data()[at * size..][..size]);
    }
    Ok(Tensor64::vector(data))
}

/// [`gather_mm`] with a stack of quantized matrices, transposed (`[.., n, k]`) or not (`[.., k,
/// n]`).
///
/// The condition is that of [`quantized_matmul`](super::quantized_matmul).
pub fn gather_qmm(
    x: &Tensor64,
    w: &Quantized,
    lhs: Option<&IntTensor>,
    rhs: Option<&IntTensor>,
    transpose: bool,
) -> Result<Answer, OracleError> {
    let weight = dequantize(w);
    split_matrix("gather_qmm", weight.value.shape())?;
    let product = |x: &Tensor64, w: &Tensor64| {
        let w = if transpose { w.transpose_last() } else { w.clone() };
        gather_mm(x, &w, lhs, rhs)
    };
    let value = product(x, &weight.value)?.value;
    let condition = product(&x.map(f64::abs), &weight.condition)?.value;
    Ok(Answer { value, condition })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::quantize::{Mode, QuantizeRule, quantize};
    use crate::ops::{matmul, quantized_matmul};

    fn counting(shape: &[usize]) -> Tensor64 {
        Tensor64::trusted(
            shape.to_vec(),
            (0..shape.iter().product()).map(|i: usize| i as f64).collect(),
        )
    }

    #[test]
    fn each_pair_of_indices_is_one_product() {
        let (a, b) = (counting(&[4, 2, 3]), counting(&[3, 3, 2]));
        let lhs = IntTensor::new([2, 1], vec![3, 0]).unwrap();
        let rhs = IntTensor::new([2], vec![2, 2]).unwrap();
        let found = gather_mm(&a, &b, Some(&lhs), Some(&rhs)).unwrap().value;
        assert_eq!(found.shape(), [2, 2, 2, 2]);
        let one = |i: usize, j: usize| {
            let a = Tensor64::new([2, 3], a.data()[i * 6..][..6].to_vec()).unwrap();
            let b = Tensor64::new([3, 2], b.data()[j * 6..][..6].to_vec()).unwrap();
            matmul(&a, &b).unwrap().value.into_data()
        };
        assert_eq!(found.data()[4..8], one(3, 2));
        assert_eq!(found.data()[8..12], one(0, 2));
        assert!(gather_mm(&a, &b, Some(&IntTensor::vector([4])), Some(&rhs)).is_err());
    }

    #[test]
    fn quantized_stacks_are_gathered_by_matrix() {
        let w = counting(&[3, 4, 32]);
        let q = quantize(&w, Mode::Affine { bits: 8, group_size: 32 }, QuantizeRule::MLX).unwrap();
        let x = counting(&[5, 1, 32]);
        let rhs = IntTensor::vector([2, 0, 1, 2, 2]);
        let found = gather_qmm(&x, &q, None, Some(&rhs), true).unwrap().value;
        assert_eq!(found.shape(), [5, 1, 4]);
        let all = quantized_matmul(&x.reshape([5, 1, 1, 32]).unwrap(), &q, true).unwrap().value;
        for (i, &j) in rhs.data().iter().enumerate() {
            assert_eq!(found.data()[i * 4..][..4], all.data()[(i * 3 + j as usize) * 4..][..4]);
        }
    }
}
