//! Rotary embeddings as `initialize_rope` of `mlx_lm/models/rope_utils.py` makes them.

use mlx_rs::Array;

use super::frequencies::{self as periods, Llama3, LongRope, Proportional, Yarn};
use super::{Periods, RopeOffset, Rotation, rotate};
use crate::error::EngineError;
use crate::ops::{SliceAxis, eval, refused, scalar, slice_multiply};

/// `rope_scaling` of a model configuration.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// None.
    Default,
    /// Positions divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// A base that grows with the sequence.
    Dynamic {
        /// The factor.
        factor: f64,
    },
    /// Long periods stretched, short ones kept.
    Llama3(Llama3),
    /// Interpolation by parts.
    Yarn(Yarn),
    /// One factor a period, one row of them for short and one for long sequences.
    LongRope(LongRope),
    /// A part of the pairs turns, by exponents of the whole.
    Proportional(Proportional),
}

/// A rotary embedding under a scaling; its periods are computed once, when it is made.
#[derive(Debug, Clone)]
pub struct ScaledRope {
    dims: i32,
    traditional: bool,
    turning: Turning,
}

/// A rotation by the periods of a base.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlainRotation {
    /// Rotated values of each head.
    pub(crate) dims: i32,
    /// Whether pairs are neighbours.
    pub(crate) traditional: bool,
    /// Base of the periods.
    pub(crate) base: f32,
    /// What multiplies positions.
    pub(crate) scale: f32,
}

#[derive(Debug, Clone)]
enum Turning {
    Plain { base: f64, scale: f64 },
    Dynamic { base: f64, factor: f64, max_position_embeddings: i32 },
    Given(Table),
    ByLength { limit: i32, short: Table, long: Table },
}

/// Computed periods, f32 `[dims / 2]`, and what multiplies the rotated values first.
#[derive(Debug, Clone)]
struct Table {
    periods: Array,
    input_scale: Option<f64>,
}

impl Table {
    fn new(periods: Array, input_scale: Option<f64>) -> Result<Self, EngineError> {
        eval([&periods])?;
        Ok(Self { periods, input_scale })
    }
}

impl ScaledRope {
    /// `initialize_rope(dims, base, traditional, scaling, max_position_embeddings)`.
    ///
    /// # Errors
    /// [`EngineError::Op`] for factors that are neither one nor one a period, and where MLX throws.
    pub fn new(
        dims: i32,
        base: f64,
        traditional: bool,
        max_position_embeddings: i32,
        scaling: &RopeScaling,
    ) -> Result<Self, EngineError> {
        let turning = match scaling {
            RopeScaling::Default => Turning::Plain { base, scale: 1.0 },
            RopeScaling::Linear { factor } => Turning::Plain { base, scale: 1.0 / factor },
            &RopeScaling::Dynamic { factor } => {
                Turning::Dynamic { base, factor, max_position_embeddings }
            }
            RopeScaling::Llama3(p) => {
                Turning::Given(Table::new(periods::llama3(p, dims, base)?, None)?)
            }
            RopeScaling::Yarn(p) => {
                let input_scale = Some(p.input_scale()).filter(|&scale| scale != 1.0);
                Turning::Given(Table::new(periods::yarn(p, dims, base)?, input_scale)?)
            }
            RopeScaling::LongRope(p) => by_length(p, dims, base, max_position_embeddings)?,
            RopeScaling::Proportional(p) => {
                Turning::Given(Table::new(periods::proportional(p, dims, base)?, None)?)
            }
        };
        // `SuScaledRoPE` has no traditional form.
        let traditional = traditional && !matches!(turning, Turning::ByLength { .. });
        Ok(Self { dims, traditional, turning })
    }

    /// The longest sequence under the short factors of [`RopeScaling::LongRope`]; none elsewhere. Keys
    /// that were rotated on one side of it do not fit queries of the other.
    pub fn length_limit(&self) -> Option<i32> {
        match self.turning {
            Turning::ByLength { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// Whether periods go by the length of the sequence: [`RopeScaling::Dynamic`] and
    /// [`RopeScaling::LongRope`].
    pub fn goes_by_length(&self) -> bool {
        matches!(self.turning, Turning::Dynamic { .. } | Turning::ByLength { .. })
    }

    /// The longest sequence under the unchanged base of [`RopeScaling::Dynamic`]; none elsewhere. Behind
    /// it, how far a row turns depends on where its call ends.
    pub fn stretches_from(&self) -> Option<i32> {
        match self.turning {
            Turning::Dynamic { max_position_embeddings, .. } => Some(max_position_embeddings),
            _ => None,
        }
    }

    /// The rotation, where its periods are those of a base and nothing else.
    pub(crate) fn plain(&self) -> Option<PlainRotation> {
        match self.turning {
            Turning::Plain { base, scale } => Some(PlainRotation {
                dims: self.dims,
                traditional: self.traditional,
                base: base as f32,
                scale: scale as f32,
            }),
            _ => None,
        }
    }

    /// x `[batch, .., n, d]`, whose first row stands at `offset` of a sequence of `length` tokens, which
    /// only [`RopeScaling::LongRope`] asks for; absent, the sequence ends where x does.
    ///
    /// # Errors
    /// [`EngineError::Op`] for offsets per item under [`RopeScaling::Dynamic`], whose base depends on
    /// one offset, and, without a length, under [`RopeScaling::LongRope`]; and where MLX throws.
    pub fn forward(
        &self,
        x: &Array,
        offset: RopeOffset,
        length: Option<i32>,
    ) -> Result<Array, EngineError> {
        match &self.turning {
            Turning::Plain { base, scale } => {
                self.rotate(x, Periods::Base(*base as f32), *scale as f32, offset)
            }
            Turning::Dynamic { base, factor, max_position_embeddings } => {
                let (end, limit) = (end(x, offset)?, *max_position_embeddings);
                let base = periods::dynamic_base(*factor, self.dims, *base, limit, end);
                self.rotate(x, Periods::Base(base as f32), 1.0, offset)
            }
            Turning::Given(table) => self.by_table(x, table, offset),
            Turning::ByLength { limit, short, long } => {
                let length = length.map_or_else(|| end(x, offset), Ok)?;
                self.by_table(x, if length > *limit { long } else { short }, offset)
            }
        }
    }

    fn by_table(&self, x: &Array, table: &Table, offset: RopeOffset) -> Result<Array, EngineError> {
        let scaled = table.input_scale.map(|scale| self.scale_input(x, scale)).transpose()?;
        self.rotate(scaled.as_ref().unwrap_or(x), Periods::Given(&table.periods), 1.0, offset)
    }

    fn rotate(
        &self,
        x: &Array,
        periods: Periods,
        scale: f32,
        offset: RopeOffset,
    ) -> Result<Array, EngineError> {
        let rotation = Rotation { dims: self.dims, traditional: self.traditional, periods, scale };
        rotate(x, &rotation, offset)
    }

    /// `x.at[..., :dims].multiply(scale)`.
    fn scale_input(&self, x: &Array, scale: f64) -> Result<Array, EngineError> {
        let mut axes: Vec<_> = x.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
        if let Some(last) = axes.last_mut() {
            *last = SliceAxis::full(self.dims);
        }
        slice_multiply(x, &scalar(scale, x.dtype())?, &axes)
    }
}

/// The two tables of [`RopeScaling::LongRope`].
fn by_length(
    p: &LongRope,
    dims: i32,
    base: f64,
    max_position_embeddings: i32,
) -> Result<Turning, EngineError> {
    let default = p.input_scale(max_position_embeddings);
    let table = |factors: &[f32], scale: Option<f64>| {
        // The reference multiplies by one, too.
        let scale = Some(scale.unwrap_or(default));
        Table::new(periods::long_rope(factors, dims, base)?, scale)
    };
    Ok(Turning::ByLength {
        limit: p.original_max_position_embeddings as i32,
        short: table(&p.short_factor, p.short_mscale)?,
        long: table(&p.long_factor, p.long_mscale)?,
    })
}

/// The number of tokens before the end of x.
fn end(x: &Array, offset: RopeOffset) -> Result<i32, EngineError> {
    match offset {
        RopeOffset::At(offset) => Ok(x.dim(-2) + offset),
        RopeOffset::PerItem(_) => {
            Err(refused("rope", "one offset an item", "one for all, by which the periods go"))
        }
    }
}
