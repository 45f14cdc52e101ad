//! Elementwise arithmetic of two operands broadcast together.

use super::Op;
use super::division::{Rounding, floor_divide, remainder};
use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::{Tensor64, broadcast_shapes};

/// `f(a, b)` gives value and condition, element by element.
pub(crate) fn broadcast(
    op: &'static str,
    a: &Tensor64,
    b: &Tensor64,
    f: impl Fn(f64, f64) -> (f64, f64),
) -> Result<Answer, OracleError> {
    let shape = broadcast_shapes(op, a.shape(), b.shape())?;
    let (a, b) = (a.broadcast_to(&shape)?, b.broadcast_to(&shape)?);
    let pairs = a.data().iter().zip(b.data()).map(|(&a, &b)| f(a, b)).collect();
    Ok(Answer::from_pairs(shape, pairs))
}

/// The answer of any op of the family [`Binary`](super::Family::Binary) on floats, in the reference's
/// convention, or `None` for another op.
pub fn binary(op: Op, a: &Tensor64, b: &Tensor64) -> Option<Result<Answer, OracleError>> {
    Some(match op {
        Op::Add => add(a, b),
        Op::Sub => sub(a, b),
        Op::Mul => mul(a, b),
        Op::Div => div(a, b),
        Op::FloorDivide => floor_divide(a, b, Rounding::Floor),
        Op::Remainder => remainder(a, b, Rounding::Floor),
        Op::Power => power(a, b),
        _ => return None,
    })
}

/// a + b; the condition is the magnitude of the value, since one addition rounds once.
pub fn add(a: &Tensor64, b: &Tensor64) -> Result<Answer, OracleError> {
    broadcast("add", a, b, |a, b| (a + b, (a + b).abs()))
}

/// a − b.
pub fn sub(a: &Tensor64, b: &Tensor64) -> Result<Answer, OracleError> {
    broadcast("sub", a, b, |a, b| (a - b, (a - b).abs()))
}

/// a · b.
pub fn mul(a: &Tensor64, b: &Tensor64) -> Result<Answer, OracleError> {
    broadcast("mul", a, b, |a, b| (a * b, (a * b).abs()))
}

/// a / b by IEEE 754: signed infinities at zero divisors, NaN at 0/0.
pub fn div(a: &Tensor64, b: &Tensor64) -> Result<Answer, OracleError> {
    broadcast("div", a, b, |a, b| (a / b, (a / b).abs()))
}

/// aᵇ by IEEE 754 `pow`. The condition carries the rounding of b·log a.
pub fn power(a: &Tensor64, b: &Tensor64) -> Result<Answer, OracleError> {
    broadcast("power", a, b, |a, b| {
        let value = libm::pow(a, b);
        let exponent = (b * libm::log(a.abs())).abs();
        let steep = if exponent.is_finite() && value != 0.0 { exponent } else { 0.0 };
        (value, value.abs() * (1.0 + steep))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Family, OPS};

    #[test]
    fn every_binary_op_of_the_table_has_an_answer_of_its_own_and_no_other_has() {
        let (a, b) = (Tensor64::vector([7.5, -3.0]), Tensor64::vector([2.0, 4.5]));
        let mut seen: Vec<Tensor64> = Vec::new();
        for info in OPS {
            let answer = binary(info.op, &a, &b);
            assert_eq!(answer.is_some(), info.family == Family::Binary, "{}", info.name);
            seen.extend(answer.map(|answer| answer.unwrap().value));
        }
        let distinct = seen.iter().enumerate().all(|(i, value)| !seen[..i].contains(value));
        assert!(distinct, "{seen:?}");
    }

    #[test]
    fn operands_broadcast_both_ways() {
        let column = Tensor64::new([2, 1], vec![1.0, 10.0]).unwrap();
        let row = Tensor64::vector([1.0, 2.0, 3.0]);
        let sub = sub(&column, &row).unwrap().value;
        assert_eq!(sub.shape(), [2, 3]);
        assert_eq!(sub.data(), [0.0, -1.0, -2.0, 9.0, 8.0, 7.0]);
        assert!(add(&row, &Tensor64::vector([1.0, 2.0])).is_err());
    }

    #[test]
    fn division_and_power_follow_ieee() {
        let a = Tensor64::vector([1.0, -1.0, 0.0, -2.0, 0.0]);
        let b = Tensor64::vector([0.0, 0.0, 0.0, 3.0, -1.0]);
        let quotient = div(&a, &b).unwrap().value;
        assert_eq!(quotient.data()[..2], [f64::INFINITY, f64::NEG_INFINITY]);
        assert!(quotient.data()[2].is_nan());
        let power = power(&a, &b).unwrap().value;
        assert_eq!(power.data(), [1.0, 1.0, 1.0, -8.0, f64::INFINITY]);
    }
}
