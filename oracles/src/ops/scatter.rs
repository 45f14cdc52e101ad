//! Scattered addition, and elements put at indices.

use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::Compensated;
use crate::tensor::{IntTensor, Tensor64, resolve_axis, resolve_index, strides};

/// `x` with `updates` added to its slices at `indices` along `axis`; a repeated index adds every
/// one of its updates.
///
/// `updates` has the shape [`take`](super::take) would give. The condition is |x| + Σ|updates| of
/// each element.
pub fn scatter_add(
    x: &Tensor64,
    indices: &IntTensor,
    updates: &Tensor64,
    axis: isize,
) -> Result<Answer, OracleError> {
    let op = "scatter_add";
    let axis = resolve_axis(op, axis, x.ndim())?;
    let wanted = [&x.shape()[..axis], indices.shape(), &x.shape()[axis + 1..]].concat();
    if updates.shape() != wanted {
        return Err(OracleError::shape(op, updates.shape(), format!("{wanted:?}")));
    }
    let size = x.shape()[axis];
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let mut sums: Vec<Compensated> =
        x.data().iter().map(|&v| Compensated::from_iter([v])).collect();
    let mut condition = x.map(f64::abs);
    for (i, &update) in updates.data().iter().enumerate() {
        let pick = resolve_index(op, indices.data()[i / inner % indices.len()], size)?;
        let at = (i / (inner * indices.len()) * size + pick) * inner + i % inner;
        sums[at].add(update);
        condition.data_mut()[at] += update.abs();
    }
    let value = sums.iter().map(Compensated::value).collect();
    Ok(Answer { value: Tensor64::trusted(x.shape().to_vec(), value), condition })
}

/// `x` with `value` put along `axis` at each index: `out[.., indices[.., i, ..], ..] = value`,
/// `numpy.put_along_axis`. Off the axis the shapes must be equal.
pub fn put_along_axis(
    x: &Tensor64,
    indices: &IntTensor,
    value: f64,
    axis: isize,
) -> Result<Answer, OracleError> {
    let op = "put_along_axis";
    let axis = resolve_axis(op, axis, x.ndim())?;
    let mut wanted = x.shape().to_vec();
    wanted[axis] = indices.shape().get(axis).copied().unwrap_or(0);
    if indices.shape() != wanted {
        return Err(OracleError::shape(op, indices.shape(), format!("{wanted:?}")));
    }
    let inner = strides(x.shape())[axis];
    let (size, put) = (x.shape()[axis], wanted[axis]);
    let mut out = x.clone();
    for (i, &index) in indices.data().iter().enumerate() {
        let block = i / (put * inner);
        let at = resolve_index(op, index, size)?;
        out.data_mut()[(block * size + at) * inner + i % inner] = value;
    }
    Ok(Answer::exact(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_indices_add_up() {
        let x = Tensor64::new([2, 3], vec![0.0, 0.0, 0.0, 1.0, 1.0, 1.0]).unwrap();
        let indices = IntTensor::vector([2, 0, 2, -1]);
        let updates = Tensor64::new([2, 4], (1..9).map(f64::from).collect()).unwrap();
        let found = scatter_add(&x, &indices, &updates, 1).unwrap();
        assert_eq!(found.value.data(), [2.0, 0.0, 8.0, 7.0, 1.0, 21.0]);
        assert_eq!(found.condition.data(), found.value.data());
        assert!(scatter_add(&x, &indices, &updates, 0).is_err());
        assert!(scatter_add(&x, &IntTensor::vector([3; 4]), &updates, 1).is_err());
    }

    #[test]
    fn one_value_for_each_index() {
        let x = Tensor64::new([2, 2, 2], (0..8).map(f64::from).collect()).unwrap();
        let indices = IntTensor::new([2, 1, 2], vec![1, 0, -1, 1]).unwrap();
        let found = put_along_axis(&x, &indices, 9.0, 1).unwrap().value;
        assert_eq!(found.data(), [0.0, 9.0, 9.0, 3.0, 4.0, 5.0, 9.0, 9.0]);
        assert!(put_along_axis(&x, &IntTensor::vector([0]), 9.0, 1).is_err());
    }

    #[test]
    fn leading_axis_adds_rows() {
        let x = Tensor64::full([2, 2], 0.0);
        let updates = Tensor64::new([3, 2], vec![1e100, 1.0, 1.0, 1.0, -1e100, 1.0]).unwrap();
        let found = scatter_add(&x, &IntTensor::vector([1, 1, 1]), &updates, 0).unwrap().value;
        assert_eq!(found.data(), [0.0, 0.0, 1.0, 3.0]);
    }
}
