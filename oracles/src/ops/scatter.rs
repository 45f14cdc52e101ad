//! Scattered addition.

use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::Compensated;
use crate::tensor::{IntTensor, Tensor64, resolve_axis, resolve_index};

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
    fn leading_axis_adds_rows() {
        let x = Tensor64::full([2, 2], 0.0);
        let updates = Tensor64::new([3, 2], vec![1e100, 1.0, 1.0, 1.0, -1e100, 1.0]).unwrap();
        let found = scatter_add(&x, &IntTensor::vector([1, 1, 1]), &updates, 0).unwrap().value;
        assert_eq!(found.data(), [0.0, 0.0, 1.0, 3.0]);
    }
}
