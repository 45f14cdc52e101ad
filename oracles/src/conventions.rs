//! The known alternative conventions, so that a failing check can say which one its subject follows
//! (design §3.9).
//!
//! Each is a value of a parameter of the op it concerns; a harness computes the op under it and
//! compares.

use crate::ops::Op;

/// A convention that implementations take for the reference's by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Convention {
    /// A causal mask aligned at the first key:
    /// [`CausalAlignment::TopLeft`](crate::ops::CausalAlignment).
    CausalTopLeft,
    /// A boolean mask added as zeros and ones: [`Mask::Additive`](crate::ops::Mask) of the mask as
    /// numbers.
    MaskAdded,
    /// A boolean mask with its sense inverted: true hides.
    MaskInverted,
    /// An additive mask read as boolean: where it is not zero a key is seen.
    MaskAsBoolean,
    /// A window one key wider.
    WindowPlusOne,
    /// A window one key narrower.
    WindowMinusOne,
    /// The weight where one plus it is meant: [`NormWeight::Plain`](crate::ops::NormWeight).
    NormWithoutOne,
    /// One plus the weight where it alone is meant:
    /// [`NormWeight::OnePlus`](crate::ops::NormWeight).
    NormWithOne,
    /// The tanh approximation for the exact gelu: [`Gelu::Tanh`](crate::ops::Gelu).
    GeluTanh,
    /// The sigmoid approximation for another gelu: [`Gelu::Fast`](crate::ops::Gelu).
    GeluFast,
    /// The exact gelu for an approximation: [`Gelu::Exact`](crate::ops::Gelu).
    GeluExact,
    /// Quotients that truncate: [`Rounding::Truncate`](crate::ops::Rounding).
    DivisionTruncates,
    /// The other pairing of rotated features: [`Rope::traditional`](crate::ops::Rope) inverted.
    RopePairing,
    /// Variance with Bessel's correction where none is meant, or without: `ddof` of
    /// [`var`](crate::ops::var).
    VarianceDdof,
    /// NaN skipped where it should win: the answer without the NaN elements.
    NanSkipped,
    /// The other assignment of channels to groups: [`ChannelOrder`](crate::ops::ChannelOrder).
    GroupOrder,
}

/// Every convention.
pub const CONVENTIONS: &[Convention] = &[
    Convention::CausalTopLeft,
    Convention::MaskAdded,
    Convention::MaskInverted,
    Convention::MaskAsBoolean,
    Convention::WindowPlusOne,
    Convention::WindowMinusOne,
    Convention::NormWithoutOne,
    Convention::NormWithOne,
    Convention::GeluTanh,
    Convention::GeluFast,
    Convention::GeluExact,
    Convention::DivisionTruncates,
    Convention::RopePairing,
    Convention::VarianceDdof,
    Convention::NanSkipped,
    Convention::GroupOrder,
];

impl Convention {
    /// Its name in rows and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::CausalTopLeft => "causal-top-left",
            Self::MaskAdded => "mask-added",
            Self::MaskInverted => "mask-inverted",
            Self::MaskAsBoolean => "mask-as-boolean",
            Self::WindowPlusOne => "window+1",
            Self::WindowMinusOne => "window-1",
            Self::NormWithoutOne => "norm-without-1+w",
            Self::NormWithOne => "norm-with-1+w",
            Self::GeluTanh => "gelu-tanh",
            Self::GeluFast => "gelu-fast",
            Self::GeluExact => "gelu-exact",
            Self::DivisionTruncates => "division-truncates",
            Self::RopePairing => "rope-pairing",
            Self::VarianceDdof => "variance-ddof",
            Self::NanSkipped => "nan-skipped",
            Self::GroupOrder => "group-order",
        }
    }

    /// The ops it can be mistaken in.
    pub fn ops(self) -> &'static [Op] {
        match self {
            Self::CausalTopLeft
            | Self::MaskAdded
            | Self::MaskInverted
            | Self::MaskAsBoolean
            | Self::WindowPlusOne
            | Self::WindowMinusOne => &[Op::Sdpa, Op::QuantizedSdpa],
            Self::NormWithoutOne | Self::NormWithOne => &[Op::RmsNorm],
            Self::GeluTanh => &[Op::Gelu, Op::GeluFast],
            Self::GeluFast => &[Op::Gelu, Op::GeluTanh],
            Self::GeluExact => &[Op::GeluTanh, Op::GeluFast],
            Self::DivisionTruncates => &[Op::FloorDivide, Op::Remainder],
            Self::RopePairing => &[Op::Rope],
            Self::VarianceDdof => &[Op::Var],
            Self::NanSkipped => {
                &[Op::Max, Op::Min, Op::Argmax, Op::Argmin, Op::Cummax, Op::Sort, Op::Topk]
            }
            Self::GroupOrder => &[Op::GroupNorm],
        }
    }

    /// Those that concern an op.
    pub fn of(op: Op) -> impl Iterator<Item = Self> {
        CONVENTIONS.iter().copied().filter(move |convention| convention.ops().contains(&op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_ops_find_their_conventions() {
        let names: std::collections::BTreeSet<_> = CONVENTIONS.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), CONVENTIONS.len());
        assert!(Convention::of(Op::Rope).eq([Convention::RopePairing]));
        assert_eq!(Convention::of(Op::Add).count(), 0);
        for convention in CONVENTIONS {
            assert!(
                convention.ops().iter().all(|&op| Convention::of(op).any(|c| c == *convention))
            );
        }
    }
}
