//! `mx.fast.rope`, and the scalings of it in use.

mod frequencies;
mod scaled;

pub use frequencies::{Llama3, LongRope, Proportional, Yarn};
pub(crate) use scaled::PlainRotation;
pub use scaled::{RopeScaling, ScaledRope};

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.fast.rope`: rotates the first `dims` of the last axis of x `[.., n, d]`; row i stands at
/// position `(offset + i) * scale`. `traditional` pairs neighbours, otherwise the two halves.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn rope(
    x: &Array,
    dims: i32,
    traditional: bool,
    base: f32,
    scale: f32,
    offset: i32,
) -> Result<Array, EngineError> {
    let rotation = Rotation { dims, traditional, periods: Periods::Base(base), scale };
    rotate(x, &rotation, RopeOffset::At(offset))
}

/// Position of the first row.
#[derive(Debug, Clone, Copy)]
pub enum RopeOffset<'a> {
    /// The same for the whole batch.
    At(i32),
    /// One for each item of the leading axis, i32 `[batch]`, or a scalar.
    PerItem(&'a Array),
}

/// How long each pair takes to turn.
#[derive(Debug, Clone, Copy)]
pub enum Periods<'a> {
    /// `base^(2i / dims)` tokens a radian.
    Base(f32),
    /// These, f32 `[dims / 2]`: `freqs` of `mx.fast.rope`, which are tokens a radian.
    Given(&'a Array),
}

/// Parameters of [`rotate`].
#[derive(Debug, Clone, Copy)]
pub struct Rotation<'a> {
    /// Values of the last axis that are rotated.
    pub dims: i32,
    /// Whether neighbours pair up, rather than the two halves.
    pub traditional: bool,
    /// How long each pair takes to turn.
    pub periods: Periods<'a>,
    /// Positions are multiplied by this.
    pub scale: f32,
}

/// `mx.fast.rope` with any offset and periods; x as for [`rope`].
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn rotate(x: &Array, rotation: &Rotation, offset: RopeOffset) -> Result<Array, EngineError> {
    let &Rotation { dims, traditional, periods, scale } = rotation;
    let (base, periods) = match periods {
        Periods::Base(base) => (Some(base), None),
        Periods::Given(periods) => (None, Some(periods)),
    };
    let rotated = match offset {
        RopeOffset::At(offset) => {
            mlx_rs::fast::rope(x, dims, traditional, base, scale, offset, periods)
        }
        RopeOffset::PerItem(offsets) => {
            mlx_rs::fast::rope_dynamic(x, dims, traditional, base, scale, offsets, periods)
        }
    };
    op("fast.rope", rotated)
}
