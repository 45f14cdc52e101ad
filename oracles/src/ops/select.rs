//! Elementwise choice.

use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::{BoolTensor, Tensor64, broadcast_shapes};

/// `where`: `a` where the condition holds, else `b`; the three broadcast together. NaN on the side
/// not taken is not seen.
pub fn select(condition: &BoolTensor, a: &Tensor64, b: &Tensor64) -> Result<Answer, OracleError> {
    let sides = broadcast_shapes("where", a.shape(), b.shape())?;
    let shape = broadcast_shapes("where", condition.shape(), &sides)?;
    let (c, a, b) =
        (condition.broadcast_to(&shape)?, a.broadcast_to(&shape)?, b.broadcast_to(&shape)?);
    let pick = |((&c, &a), &b): ((&bool, &f64), &f64)| if c { a } else { b };
    let data = c.data().iter().zip(a.data()).zip(b.data()).map(pick).collect();
    Ok(Answer::exact(Tensor64::trusted(shape, data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_operands_broadcast() {
        let condition = BoolTensor::new([2, 1], vec![true, false]).unwrap();
        let found = select(&condition, &Tensor64::vector([1.0, 2.0]), &Tensor64::scalar(f64::NAN));
        let found = found.unwrap().value;
        assert_eq!(found.data()[..2], [1.0, 2.0]);
        assert!(found.data()[2..].iter().all(|v| v.is_nan()));
    }
}
