//! Joining along an axis.

use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::{Tensor64, resolve_axis};

/// Tensors joined along `axis`; their shapes must agree elsewhere.
pub fn concat(parts: &[&Tensor64], axis: isize) -> Result<Answer, OracleError> {
    let op = "concat";
    let first =
        parts.first().ok_or_else(|| OracleError::parameter(op, "no tensors", "one or more"))?;
    let axis = resolve_axis(op, axis, first.ndim())?;
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for part in parts {
        let mut wanted = shape.clone();
        wanted[axis] = part.shape().get(axis).copied().unwrap_or(0);
        if part.shape() != wanted {
            return Err(OracleError::shape(op, part.shape(), format!("{wanted:?}")));
        }
        shape[axis] += wanted[axis];
    }
    let outer: usize = shape[..axis].iter().product();
    let mut data = Vec::with_capacity(shape.iter().product());
    for block in 0..outer {
        for part in parts {
            let width: usize = part.shape()[axis..].iter().product();
            data.extend_from_slice(&part.data()[block * width..][..width]);
        }
    }
    Ok(Answer::exact(Tensor64::trusted(shape, data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_unequal_width() {
        let a = Tensor64::new([2, 1], vec![1.0, 2.0]).unwrap();
        let b = Tensor64::new([2, 2], vec![3.0, 4.0, 5.0, 6.0]).unwrap();
        let found = concat(&[&a, &b], -1).unwrap().value;
        assert_eq!(
            (found.shape(), found.data()),
            (&[2, 3][..], &[1.0, 3.0, 4.0, 2.0, 5.0, 6.0][..])
        );
        assert!(concat(&[&a, &b], 0).is_err());
        assert!(concat(&[], 0).is_err());
    }
}
