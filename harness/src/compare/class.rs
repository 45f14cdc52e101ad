//! What kind of number an element is: compared before any metric.

use serde::{Deserialize, Serialize};

/// Kind of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Not a number.
    Nan,
    /// Positive infinity.
    PositiveInfinity,
    /// Negative infinity.
    NegativeInfinity,
    /// `+0`.
    PositiveZero,
    /// `-0`.
    NegativeZero,
    /// Any other number.
    Finite,
}

impl Class {
    /// Class of a widened element; widening keeps it.
    pub fn of(x: f64) -> Self {
        match (x, x.is_sign_negative()) {
            _ if x.is_nan() => Self::Nan,
            (f64::INFINITY, _) => Self::PositiveInfinity,
            (f64::NEG_INFINITY, _) => Self::NegativeInfinity,
            (0.0, false) => Self::PositiveZero,
            (0.0, true) => Self::NegativeZero,
            _ => Self::Finite,
        }
    }

    /// Whether a metric can be taken: zero of either sign, or another finite number.
    pub fn is_finite(self) -> bool {
        matches!(self, Self::PositiveZero | Self::NegativeZero | Self::Finite)
    }

    /// Whether two numbers can be compared by a metric, or need none. A zero and a small number can.
    pub fn agrees(self, other: Self) -> bool {
        self == other || (self.is_finite() && other.is_finite())
    }

    /// Whether the two are zeros of opposite sign.
    pub fn differs_in_zero_sign(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::PositiveZero, Self::NegativeZero) | (Self::NegativeZero, Self::PositiveZero)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_told_apart() {
        let samples = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -5e-324];
        let classes = samples.map(Class::of);
        for (i, a) in classes.iter().enumerate() {
            for (j, b) in classes.iter().enumerate() {
                assert_eq!(a == b, i == j, "{a:?} {b:?}");
                assert_eq!(a.agrees(*b), i == j || (i > 2 && j > 2), "{a:?} {b:?}");
            }
        }
        assert_eq!(Class::of(-f64::NAN), Class::Nan);
        assert!(Class::PositiveZero.differs_in_zero_sign(Class::NegativeZero));
        assert!(!Class::PositiveZero.differs_in_zero_sign(Class::Finite));
    }
}
