//! Positions of extremes. NaN wins, as in `numpy`, and the first of equals is reported.

use crate::error::OracleError;
use crate::tensor::{IntTensor, Tensor64, resolve_axis};

/// Position of the first largest element along `axis`, or of the first NaN where there is one.
pub fn argmax(x: &Tensor64, axis: isize, keep_dims: bool) -> Result<IntTensor, OracleError> {
    extreme("argmax", x, axis, keep_dims, |new, best| new > best)
}

/// Position of the first smallest element along `axis`, or of the first NaN where there is one.
pub fn argmin(x: &Tensor64, axis: isize, keep_dims: bool) -> Result<IntTensor, OracleError> {
    extreme("argmin", x, axis, keep_dims, |new, best| new < best)
}

fn extreme(
    op: &'static str,
    x: &Tensor64,
    axis: isize,
    keep_dims: bool,
    better: impl Fn(f64, f64) -> bool,
) -> Result<IntTensor, OracleError> {
    let axis = resolve_axis(op, axis, x.ndim())?;
    if x.shape()[axis] == 0 {
        return Err(OracleError::shape(op, x.shape(), "an axis with elements"));
    }
    let position = |row: &[f64]| {
        let first_nan = row.iter().position(|v| v.is_nan());
        first_nan.unwrap_or_else(|| {
            (1..row.len()).fold(0, |best, i| if better(row[i], row[best]) { i } else { best })
        }) as i64
    };
    let mut shape = x.shape().to_vec();
    if keep_dims {
        shape[axis] = 1;
    } else {
        shape.remove(axis);
    }
    IntTensor::new(shape, x.move_axis(axis, x.ndim() - 1).rows().map(position).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equals_and_the_first_nan() {
        let x =
            Tensor64::new([2, 3], vec![1.0, 3.0, 3.0, f64::INFINITY, f64::NAN, f64::NAN]).unwrap();
        assert_eq!(argmax(&x, -1, false).unwrap().data(), [1, 1]);
        assert_eq!(argmin(&x, 1, false).unwrap().data(), [0, 1]);
        let kept = argmax(&x, 0, true).unwrap();
        assert_eq!((kept.shape(), kept.data()), (&[1, 3][..], &[1, 1, 1][..]));
        assert!(argmax(&Tensor64::vector([]), 0, false).is_err());
    }
}
