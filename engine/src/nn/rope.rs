//! Rotary position encoding of the heads of a layer.

use mlx_rs::Array;

use crate::config::RopeConfig;
use crate::error::EngineError;
use crate::ops::{PlainRotation, RopeOffset, ScaledRope};

/// A position encoding, or none: what `initialize_rope` of `mlx_lm/models/rope_utils.py` makes.
/// Periods are computed when it is made.
#[derive(Debug, Clone)]
pub struct Rope(Option<ScaledRope>);

/// Where the first row of a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Tokens before it.
    pub offset: i32,
    /// Tokens that the sequence will have when all calls of this prompt are made; none: those up to
    /// the end of this call.
    pub length: Option<i32>,
}

impl From<i32> for Position {
    fn from(offset: i32) -> Self {
        Self { offset, length: None }
    }
}

/// How a [`Rope`] is told where the first row of a call stands.
#[derive(Debug, Clone, Copy)]
pub enum At<'a> {
    /// By number.
    Known(Position),
    /// By an array, i32 `[batch]` or a scalar, which need not have a value yet.
    Array(&'a Array),
}

impl<P: Into<Position>> From<P> for At<'_> {
    fn from(position: P) -> Self {
        Self::Known(position.into())
    }
}

impl Rope {
    /// The encoding of the first `dims` values of each head ([`RopeConfig::rotated`]).
    ///
    /// # Errors
    /// [`EngineError::Op`] for `dims` that are odd or zero, for factors that are neither one nor one a
    /// pair, and where MLX throws.
    pub fn new(config: &RopeConfig, dims: usize) -> Result<Self, EngineError> {
        if dims == 0 || !dims.is_multiple_of(2) {
            let found = format!("{dims} rotated values");
            return Err(crate::ops::refused("rope", &found, "an even number above 0"));
        }
        let limit = config.max_positions.map_or(i32::MAX, |limit| limit as i32);
        let RopeConfig { base, traditional, scaling, .. } = config;
        Ok(Self(Some(ScaledRope::new(dims as i32, *base, *traditional, limit, scaling)?)))
    }

    /// `nn.RoPE(dims, traditional, base)`.
    ///
    /// # Errors
    /// As [`Rope::new`].
    pub fn plain(dims: usize, base: f64, traditional: bool) -> Result<Self, EngineError> {
        Self::new(&RopeConfig { traditional, ..RopeConfig::plain(base) }, dims)
    }

    /// No position encoding: values pass as they are.
    pub fn none() -> Self {
        Self(None)
    }

    /// Whether there is an encoding.
    pub fn turns(&self) -> bool {
        self.0.is_some()
    }

    /// The longest sequence under the short factors of `longrope`; none elsewhere.
    pub fn length_limit(&self) -> Option<i32> {
        self.0.as_ref().and_then(ScaledRope::length_limit)
    }

    /// Whether periods go by the length of the sequence (`longrope`, `dynamic`), so that an array does
    /// not say enough.
    pub fn goes_by_length(&self) -> bool {
        self.0.as_ref().is_some_and(ScaledRope::goes_by_length)
    }

    /// The array of [`At`], or the number behind it where periods go by it.
    pub fn at<'a>(&self, position: Position, array: &'a Array) -> At<'a> {
        if self.goes_by_length() { At::Known(position) } else { At::Array(array) }
    }

    /// The longest sequence before periods go by where a call ends, under `dynamic`; none elsewhere.
    pub fn stretches_from(&self) -> Option<i32> {
        self.0.as_ref().and_then(ScaledRope::stretches_from)
    }

    /// [`ScaledRope::plain`] of this encoding.
    pub(crate) fn plain_rotation(&self) -> Option<PlainRotation> {
        self.0.as_ref().and_then(ScaledRope::plain)
    }

    /// x `[batch, heads, n, d]`, whose first row stands at `at`; the same shape and dtype.
    ///
    /// # Errors
    /// [`EngineError::Op`] for an array where [`Rope::goes_by_length`], and where MLX throws.
    pub fn forward<'a>(&self, x: &Array, at: impl Into<At<'a>>) -> Result<Array, EngineError> {
        let Some(rope) = &self.0 else { return Ok(x.clone()) };
        match at.into() {
            At::Known(Position { offset, length }) => {
                rope.forward(x, RopeOffset::At(offset), length)
            }
            At::Array(offsets) => rope.forward(x, RopeOffset::PerItem(offsets), None),
        }
    }
}
