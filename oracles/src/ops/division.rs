//! Flooring division and remainder, as Python and `numpy` define them.

use super::binary::broadcast;
use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::{IntTensor, Tensor64, broadcast_shapes};

/// Which way quotients round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Towards −inf: −7 // 2 = −4, and the remainder takes the divisor's sign.
    Floor,
    /// Towards zero, as C does: −7 / 2 = −3, and the remainder takes the dividend's sign.
    Truncate,
}

/// ⌊a/b⌋ in floating point, `numpy.floor_divide`: found from the exact remainder, so 1 // 0.1 = 9;
/// x // ±inf is 0 or −1; inf // x is NaN; x // 0 is x/0.
pub fn floor_divide(a: &Tensor64, b: &Tensor64, rounding: Rounding) -> Result<Answer, OracleError> {
    broadcast("floor_divide", a, b, |a, b| {
        let value = quotient(a, b, rounding);
        (value, value.abs())
    })
}

/// a − b·⌊a/b⌋ in floating point, exact: `numpy.remainder`; NaN at a zero divisor and at an
/// infinite dividend.
pub fn remainder(a: &Tensor64, b: &Tensor64, rounding: Rounding) -> Result<Answer, OracleError> {
    broadcast("remainder", a, b, |a, b| {
        let value = modulus(a, b, rounding);
        (value, value.abs())
    })
}

/// ⌊a/b⌋ of integers. A zero divisor, and −2⁶³ by −1, are errors: hardware traps or gives anything.
pub fn floor_divide_int(
    a: &IntTensor,
    b: &IntTensor,
    rounding: Rounding,
) -> Result<IntTensor, OracleError> {
    broadcast_int("floor_divide", a, b, |a, b| {
        let quotient = a.checked_div(b)?;
        let inexact_negative = a % b != 0 && (a < 0) != (b < 0);
        Some(quotient - i64::from(inexact_negative && rounding == Rounding::Floor))
    })
}

/// a − b·⌊a/b⌋ of integers; errors as [`floor_divide_int`].
pub fn remainder_int(
    a: &IntTensor,
    b: &IntTensor,
    rounding: Rounding,
) -> Result<IntTensor, OracleError> {
    broadcast_int("remainder", a, b, |a, b| {
        let rest = a.checked_rem(b)?;
        let wrap = rest != 0 && (rest < 0) != (b < 0) && rounding == Rounding::Floor;
        Some(if wrap { rest + b } else { rest })
    })
}

fn broadcast_int(
    op: &'static str,
    a: &IntTensor,
    b: &IntTensor,
    f: impl Fn(i64, i64) -> Option<i64>,
) -> Result<IntTensor, OracleError> {
    let shape = broadcast_shapes(op, a.shape(), b.shape())?;
    let (a, b) = (a.broadcast_to(&shape)?, b.broadcast_to(&shape)?);
    let divide = |(&a, &b): (&i64, &i64)| {
        f(a, b).ok_or_else(|| {
            OracleError::parameter(op, format!("{a} by {b}"), "a quotient that is an integer")
        })
    };
    IntTensor::new(shape, a.data().iter().zip(b.data()).map(divide).collect::<Result<_, _>>()?)
}

fn modulus(a: f64, b: f64, rounding: Rounding) -> f64 {
    let rest = libm::fmod(a, b);
    if rounding == Rounding::Truncate || rest.is_nan() {
        return rest;
    }
    if rest == 0.0 {
        return 0.0_f64.copysign(b);
    }
    if (rest < 0.0) == (b < 0.0) { rest } else { rest + b }
}

fn quotient(a: f64, b: f64, rounding: Rounding) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let exact = (a - libm::fmod(a, b)) / b;
    let nearest = if exact == 0.0 { 0.0_f64.copysign(a / b) } else { exact.round() };
    let rest = libm::fmod(a, b);
    let below = rounding == Rounding::Floor && rest != 0.0 && (rest < 0.0) != (b < 0.0);
    if below { nearest - 1.0 } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    fn floats(a: f64, b: f64, rounding: Rounding) -> (f64, f64) {
        let (a, b) = (Tensor64::scalar(a), Tensor64::scalar(b));
        let quotient = floor_divide(&a, &b, rounding).unwrap().value.data()[0];
        (quotient, remainder(&a, &b, rounding).unwrap().value.data()[0])
    }

    #[test]
    fn floats_floor_as_python_floors() {
        // Python: divmod(a, b)
        let cases = [
            (-7.0, 2.0, -4.0, 1.0),
            (7.0, -2.0, -4.0, -1.0),
            (1.0, 0.1, 9.0, 0.099_999_999_999_999_95),
            (1.0, INF, 0.0, 1.0),
            (-1.0, INF, -1.0, INF),
            (1.0, -INF, -1.0, -INF),
            (6.0, -3.0, -2.0, -0.0),
        ];
        for (a, b, quotient, rest) in cases {
            assert_eq!(floats(a, b, Rounding::Floor), (quotient, rest), "{a} by {b}");
        }
        assert!(floats(INF, 1.0, Rounding::Floor).0.is_nan());
        assert_eq!(floats(-1.0, 0.0, Rounding::Floor).0, -INF);
        assert!(floats(6.0, -3.0, Rounding::Floor).1.is_sign_negative());
    }

    #[test]
    fn truncation_is_the_other_convention() {
        assert_eq!(floats(-7.0, 2.0, Rounding::Truncate), (-3.0, -1.0));
        assert_eq!(floats(7.0, -2.0, Rounding::Truncate), (-3.0, 1.0));
    }

    #[test]
    fn integers_floor_and_zero_is_an_error() {
        let a = IntTensor::vector([-7, 7, -7, 7, 6, i64::MIN]);
        let b = IntTensor::vector([2, -2, -2, 2, -3, 7]);
        let floor = floor_divide_int(&a, &b, Rounding::Floor).unwrap();
        assert_eq!(floor.data()[..5], [-4, -4, 3, 3, -2]);
        let rest = remainder_int(&a, &b, Rounding::Floor).unwrap();
        assert_eq!(rest.data()[..5], [1, -1, -1, 1, 0]);
        for i in 0..a.len() {
            let back =
                i128::from(floor.data()[i]) * i128::from(b.data()[i]) + i128::from(rest.data()[i]);
            assert_eq!(back, i128::from(a.data()[i]));
        }
        let truncated = floor_divide_int(&a, &b, Rounding::Truncate).unwrap();
        assert_eq!(truncated.data()[..5], [-3, -3, 3, 3, -2]);
        assert!(floor_divide_int(&a, &IntTensor::scalar(0), Rounding::Floor).is_err());
        assert!(
            remainder_int(&IntTensor::scalar(i64::MIN), &IntTensor::scalar(-1), Rounding::Floor)
                .is_err()
        );
    }
}
