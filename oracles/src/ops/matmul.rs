//! Batched matrix products.

use rayon::prelude::*;

use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::{dot, dot_condition};
use crate::tensor::{Tensor, Tensor64, broadcast_shapes};

/// What an element of a product is made of: value and condition of one row of `a` against one row
/// of `b` transposed.
type Element = fn(&[f64], &[f64]) -> (f64, f64);

/// Σaᵢbᵢ and its condition.
pub(crate) fn both(a: &[f64], b: &[f64]) -> (f64, f64) {
    (dot(a, b), dot_condition(a, b))
}

/// Σaᵢbᵢ alone.
pub(crate) fn value_only(a: &[f64], b: &[f64]) -> (f64, f64) {
    (dot(a, b), 0.0)
}

/// `shape[..-2]`, and the last two dimensions.
pub(crate) fn split_matrix<'a>(
    op: &'static str,
    shape: &'a [usize],
) -> Result<(&'a [usize], usize, usize), OracleError> {
    match shape {
        [batch @ .., rows, columns] => Ok((batch, *rows, *columns)),
        _ => Err(OracleError::shape(op, shape, "two dimensions or more")),
    }
}

/// Which matrix of a tensor with batch shape `own` each element of `batch` reads.
fn matrix_numbers(own: &[usize], batch: &[usize]) -> Result<Vec<usize>, OracleError> {
    let count: usize = own.iter().product();
    let numbers = Tensor::new(own, (0..count).collect())?;
    Ok(numbers.broadcast_to(batch)?.into_data())
}

/// `a` (`[.., m, k]`) times the transpose of `b_rows` (`[.., n, k]`), leading axes broadcast.
pub(crate) fn times_rows(
    op: &'static str,
    a: &Tensor64,
    b_rows: &Tensor64,
    element: Element,
) -> Result<Answer, OracleError> {
    let (a_batch, m, k) = split_matrix(op, a.shape())?;
    let (b_batch, n, b_k) = split_matrix(op, b_rows.shape())?;
    if k != b_k {
        return Err(OracleError::shape(
            op,
            b_rows.shape(),
            format!("rows of {k}, given transposed"),
        ));
    }
    let mut shape = broadcast_shapes(op, a_batch, b_batch)?;
    let (lhs, rhs) = (matrix_numbers(a_batch, &shape)?, matrix_numbers(b_batch, &shape)?);
    let pairs = (0..lhs.len() * m * n)
        .into_par_iter()
        .with_min_len(16)
        .map(|at| {
            let (matrix, row, column) = (at / (m * n), at / n % m, at % n);
            let a_row = &a.data()[(lhs[matrix] * m + row) * k..][..k];
            element(a_row, &b_rows.data()[(rhs[matrix] * n + column) * k..][..k])
        })
        .collect();
    shape.extend([m, n]);
    Ok(Answer::from_pairs(shape, pairs))
}

/// a·b over the last two axes, leading axes broadcast (`numpy.matmul`: a one-dimensional operand is
/// a row on the left, a column on the right). The condition is Σ|aᵢbᵢ|.
pub fn matmul(a: &Tensor64, b: &Tensor64) -> Result<Answer, OracleError> {
    let op = "matmul";
    let (row, column) = (a.ndim() == 1, b.ndim() == 1);
    let a = if row { a.clone().reshape([1, a.len()])? } else { a.clone() };
    split_matrix(op, if column { &[1, 1] } else { b.shape() })?;
    let b_rows = if column { b.clone().reshape([1, b.len()])? } else { b.transpose_last() };
    let answer = times_rows(op, &a, &b_rows, both)?;
    let mut shape = answer.value.shape().to_vec();
    if column {
        shape.pop();
    }
    if row {
        shape.remove(shape.len() - if column { 1 } else { 2 });
    }
    Ok(Answer {
        value: answer.value.reshape(shape.clone())?,
        condition: answer.condition.reshape(shape)?,
    })
}

/// β·c + α·(a·b), c broadcast to the product's shape. The condition is |βc| + |α|Σ|aᵢbᵢ|.
pub fn addmm(
    c: &Tensor64,
    a: &Tensor64,
    b: &Tensor64,
    alpha: f64,
    beta: f64,
) -> Result<Answer, OracleError> {
    let product = matmul(a, b)?;
    let c = c.broadcast_to(product.value.shape())?;
    let terms = c.data().iter().zip(product.value.data()).zip(product.condition.data());
    let combine = |((&c, &value), &condition): ((&f64, &f64), &f64)| {
        (beta * c + alpha * value, (beta * c).abs() + alpha.abs() * condition)
    };
    Ok(Answer::from_pairs(c.shape().to_vec(), terms.map(combine).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: &[usize]) -> Tensor64 {
        Tensor64::trusted(
            shape.to_vec(),
            (0..shape.iter().product()).map(|i: usize| i as f64).collect(),
        )
    }

    #[test]
    fn batches_broadcast() {
        // numpy: np.arange(12).reshape(2, 1, 2, 3) @ np.arange(9).reshape(3, 3, 1)
        let found = matmul(&counting(&[2, 1, 2, 3]), &counting(&[3, 3, 1])).unwrap().value;
        assert_eq!(found.shape(), [2, 3, 2, 1]);
        let wanted = [5, 14, 14, 50, 23, 86, 23, 32, 86, 122, 149, 212].map(f64::from);
        assert_eq!(found.data(), wanted);
    }

    #[test]
    fn vectors_are_rows_and_columns() {
        let matrix = counting(&[2, 3]);
        let right = matmul(&matrix, &Tensor64::vector([1.0, 1.0, -1.0])).unwrap();
        assert_eq!((right.value.shape(), right.value.data()), (&[2][..], &[-1.0, 2.0][..]));
        assert_eq!(right.condition.data(), [3.0, 12.0]);
        let left = matmul(&Tensor64::vector([1.0, 2.0]), &matrix).unwrap().value;
        assert_eq!((left.shape(), left.data()), (&[3][..], &[6.0, 9.0, 12.0][..]));
        let both =
            matmul(&Tensor64::vector([1.0, 2.0]), &Tensor64::vector([3.0, 4.0])).unwrap().value;
        assert_eq!((both.ndim(), both.data()), (0, &[11.0][..]));
    }

    #[test]
    fn shapes_that_do_not_fit() {
        assert!(matmul(&counting(&[2, 3]), &counting(&[2, 3])).is_err());
        assert!(matmul(&counting(&[2, 2, 3]), &counting(&[3, 3, 2])).is_err());
        assert!(matmul(&Tensor64::scalar(1.0), &counting(&[1, 1])).is_err());
    }

    #[test]
    fn the_identity_and_the_scales_of_addmm() {
        let c = Tensor64::vector([1.0, -1.0]);
        let eye = Tensor64::new([2, 2], vec![1.0, 0.0, 0.0, 1.0]).unwrap();
        let found = addmm(&c, &counting(&[2, 2]), &eye, 2.0, -3.0).unwrap();
        assert_eq!(found.value.data(), [-3.0, 5.0, 1.0, 9.0]);
        assert_eq!(found.condition.data(), [3.0, 5.0, 7.0, 9.0]);
    }
}
