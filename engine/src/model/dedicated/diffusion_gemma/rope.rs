//! The two position encodings: `gemma4/rope_utils.py` of mlx-optiq.

use mlx_rs::{Array, Dtype};

use super::config::RopeKind;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::nn;
use crate::ops::{self, Periods, RopeOffset, Rotation, SliceAxis};

/// Rotary position encoding of one layer.
#[derive(Debug)]
pub(super) enum Rope {
    /// `nn.RoPE` over whole heads.
    Default(nn::Rope),
    /// `ProportionalRoPE`: the first pairs of a head turn, by exponents of the whole head.
    Proportional {
        /// Values of a head that turn; even.
        rotated: i32,
        /// Tokens a radian, f32 `[rotated / 2]`.
        periods: Array,
    },
    /// `ProportionalRoPE` with nothing to turn.
    Still,
}

impl Rope {
    /// The encoding of heads of `dims` values.
    pub(super) fn new(
        kind: &RopeKind,
        dims: usize,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        match *kind {
            RopeKind::Default { base } => {
                let base = fault::rope_base(fault, base);
                Ok(Self::Default(nn::Rope::plain(dims, base, false)?))
            }
            RopeKind::Proportional { base, share, factor } => {
                let pairs = (share * dims as f64 / 2.0).floor() as i32;
                if pairs == 0 {
                    return Ok(Self::Still);
                }
                let number = |value| ops::scalar(value, Dtype::Float32);
                let steps: Vec<f32> = (0..pairs).map(|pair| (2 * pair) as f32).collect();
                let steps = Array::from_slice(&steps, &[pairs]);
                let exponents = ops::divide(&steps, &number(dims as f64)?)?;
                let base = number(fault::rope_base(fault, base))?;
                let periods = ops::multiply(&number(factor)?, &ops::power(&base, &exponents)?)?;
                ops::eval([&periods])?;
                Ok(Self::Proportional { rotated: 2 * pairs, periods })
            }
        }
    }

    /// x `[batch, heads, n, d]`, whose first row stands at position `offset`.
    pub(super) fn forward(&self, x: &Array, offset: i32) -> Result<Array, EngineError> {
        match self {
            Self::Default(rope) => rope.forward(x, offset),
            Self::Proportional { rotated, periods } => turn(x, *rotated, periods, offset),
            Self::Still => Ok(x.clone()),
        }
    }
}

/// Turns the first `rotated / 2` values of each half of a head.
fn turn(x: &Array, rotated: i32, periods: &Array, offset: i32) -> Result<Array, EngineError> {
    let (half, turning) = (x.dim(-1) / 2, rotated / 2);
    let part = |a: &Array, start, stop| {
        let mut axes: Vec<_> = a.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
        axes[3] = SliceAxis::range(start, stop);
        ops::slice(a, &axes)
    };
    let (left, right) = (part(x, 0, half)?, part(x, half, 2 * half)?);
    let both = ops::concatenate(&[&part(&left, 0, turning)?, &part(&right, 0, turning)?], -1)?;
    let rotation = Rotation {
        dims: rotated,
        traditional: false,
        periods: Periods::Given(periods),
        scale: 1.0,
    };
    let both = ops::rotate(&both, &rotation, RopeOffset::At(offset))?;
    let join = |turned: &Array, whole: &Array| {
        ops::concatenate(&[turned, &part(whole, turning, half)?], -1)
    };
    let left = join(&part(&both, 0, turning)?, &left)?;
    let right = join(&part(&both, turning, rotated)?, &right)?;
    ops::concatenate(&[&left, &right], -1)
}
