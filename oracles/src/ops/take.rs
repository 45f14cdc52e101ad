//! Selection by index.

use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::{IntTensor, Tensor64, resolve_axis, resolve_index, strides};

/// Slices of `x` along `axis` at `indices`: the axis is replaced by the indices' shape. Negative
/// indices count from the end; one outside the axis is an error (MLX leaves it undefined).
pub fn take(x: &Tensor64, indices: &IntTensor, axis: isize) -> Result<Answer, OracleError> {
    let axis = resolve_axis("take", axis, x.ndim())?;
    let size = x.shape()[axis];
    let picks = indices
        .data()
        .iter()
        .map(|&i| resolve_index("take", i, size))
        .collect::<Result<Vec<_>, _>>()?;
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let outer: usize = x.shape()[..axis].iter().product();
    let mut data = Vec::with_capacity(outer * picks.len() * inner);
    for block in 0..outer {
        for &pick in &picks {
            data.extend_from_slice(&x.data()[(block * size + pick) * inner..][..inner]);
        }
    }
    let shape = [&x.shape()[..axis], indices.shape(), &x.shape()[axis + 1..]].concat();
    Ok(Answer::exact(Tensor64::trusted(shape, data)))
}

/// One element per index: `out[.., i, ..] = x[.., indices[.., i, ..], ..]`,
/// `numpy.take_along_axis`. Off the axis the shapes must be equal.
pub fn take_along_axis(
    x: &Tensor64,
    indices: &IntTensor,
    axis: isize,
) -> Result<Answer, OracleError> {
    let op = "take_along_axis";
    let axis = resolve_axis(op, axis, x.ndim())?;
    let mut wanted = x.shape().to_vec();
    wanted[axis] = indices.shape().get(axis).copied().unwrap_or(0);
    if indices.shape() != wanted {
        return Err(OracleError::shape(op, indices.shape(), format!("{wanted:?}")));
    }
    let inner = strides(x.shape())[axis];
    let (size, picked) = (x.shape()[axis], wanted[axis]);
    let fetch = |(i, &index): (usize, &i64)| {
        let block = i / (picked * inner);
        let pick = resolve_index(op, index, size)?;
        Ok(x.data()[(block * size + pick) * inner + i % inner])
    };
    let data = indices.data().iter().enumerate().map(fetch).collect::<Result<_, OracleError>>()?;
    Ok(Answer::exact(Tensor64::trusted(wanted, data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_becomes_the_indices_shape() {
        let x = Tensor64::new([2, 3, 2], (0..12).map(f64::from).collect()).unwrap();
        let indices = IntTensor::new([1, 2], vec![-1, 0]).unwrap();
        let found = take(&x, &indices, 1).unwrap().value;
        assert_eq!(found.shape(), [2, 1, 2, 2]);
        assert_eq!(found.data(), [4.0, 5.0, 0.0, 1.0, 10.0, 11.0, 6.0, 7.0]);
        assert!(take(&x, &IntTensor::vector([3]), 1).is_err());
    }

    #[test]
    fn one_element_per_index() {
        // numpy: np.take_along_axis(np.arange(12).reshape(2, 3, 2), np.array([[[2, 0]], [[1,
        // -1]]]), 1)
        let x = Tensor64::new([2, 3, 2], (0..12).map(f64::from).collect()).unwrap();
        let indices = IntTensor::new([2, 1, 2], vec![2, 0, 1, -1]).unwrap();
        let found = take_along_axis(&x, &indices, 1).unwrap().value;
        assert_eq!(found.data(), [4.0, 1.0, 8.0, 11.0]);
        assert!(take_along_axis(&x, &IntTensor::vector([0]), 1).is_err());
    }
}
