//! Rotary embeddings as `initialize_rope` of `mlx_lm/models/rope_utils.py` makes them.

use mlx_rs::Array;

use super::frequencies::{
    self as periods, Llama3, LongRope, Proportional, Yarn, long_rope_input_scale, yarn_input_scale,
};
use super::{Periods, RopeOffset, Rotation, rotate};
use crate::error::EngineError;
use crate::ops::{SliceAxis, refused, scalar, slice_multiply};

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
    /// One factor a period.
    LongRope(LongRope),
    /// A part of the pairs turns, by exponents of the whole.
    Proportional(Proportional),
}

/// A rotary embedding under a scaling.
#[derive(Debug, Clone)]
pub struct ScaledRope {
    dims: i32,
    traditional: bool,
    /// Multiplies the rotated values first.
    input_scale: Option<f64>,
    turning: Turning,
}

#[derive(Debug, Clone)]
enum Turning {
    Plain { base: f64, scale: f64 },
    Dynamic { base: f64, factor: f64, max_position_embeddings: i32 },
    Given(Array),
}

impl ScaledRope {
    /// `initialize_rope(dims, base, traditional, scaling, max_position_embeddings)`.
    ///
    /// # Errors
    /// [`EngineError::Op`] for long factors that are not one a period, and where MLX throws.
    pub fn new(
        dims: i32,
        base: f64,
        traditional: bool,
        max_position_embeddings: i32,
        scaling: &RopeScaling,
    ) -> Result<Self, EngineError> {
        let mut rope = Self {
            dims,
            traditional,
            input_scale: None,
            turning: Turning::Plain { base, scale: 1.0 },
        };
        match scaling {
            RopeScaling::Default => {}
            RopeScaling::Linear { factor } => {
                rope.turning = Turning::Plain { base, scale: 1.0 / factor };
            }
            &RopeScaling::Dynamic { factor } => {
                rope.turning = Turning::Dynamic { base, factor, max_position_embeddings };
            }
            RopeScaling::Llama3(p) => {
                rope.turning = Turning::Given(periods::llama3(p, dims, base)?);
            }
            RopeScaling::Yarn(p) => {
                rope.turning = Turning::Given(periods::yarn(p, dims, base)?);
                rope.input_scale = Some(yarn_input_scale(p)).filter(|&scale| scale != 1.0);
            }
            RopeScaling::LongRope(p) => {
                if p.long_factor.len() as i32 != (dims + 1) / 2 {
                    let found = format!("{} long factors", p.long_factor.len());
                    return Err(refused("rope", &found, &format!("{}", (dims + 1) / 2)));
                }
                rope.turning = Turning::Given(periods::long_rope(p, dims, base)?);
                rope.input_scale = Some(long_rope_input_scale(p, max_position_embeddings));
                // `SuScaledRoPE` has no traditional form.
                rope.traditional = false;
            }
            RopeScaling::Proportional(p) => {
                rope.turning = Turning::Given(periods::proportional(p, dims, base)?);
            }
        }
        Ok(rope)
    }

    /// x `[batch, .., n, d]`, whose first row stands at `offset`.
    ///
    /// # Errors
    /// [`EngineError::Op`] for offsets per item under [`RopeScaling::Dynamic`], whose base depends on
    /// one offset, and where MLX throws.
    pub fn forward(&self, x: &Array, offset: RopeOffset) -> Result<Array, EngineError> {
        let scaled = self.input_scale.map(|scale| self.scale_input(x, scale)).transpose()?;
        let (periods, scale) = match &self.turning {
            Turning::Plain { base, scale } => (Periods::Base(*base as f32), *scale as f32),
            Turning::Dynamic { base, factor, max_position_embeddings } => {
                let RopeOffset::At(offset) = offset else {
                    let found = "one offset an item";
                    return Err(refused("rope", found, "one for all under dynamic"));
                };
                let sequence = x.dim(-2) + offset;
                let limit = *max_position_embeddings;
                let base = periods::dynamic_base(*factor, self.dims, *base, limit, sequence);
                (Periods::Base(base as f32), 1.0)
            }
            Turning::Given(periods) => (Periods::Given(periods), 1.0),
        };
        let rotation = Rotation { dims: self.dims, traditional: self.traditional, periods, scale };
        rotate(scaled.as_ref().unwrap_or(x), &rotation, offset)
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
