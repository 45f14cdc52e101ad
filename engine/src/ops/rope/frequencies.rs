//! Periods under the scalings of `mlx_lm/models/rope_utils.py`, each step rounded to f32 as there.

use std::f64::consts::PI;

use mlx_rs::{Array, Dtype};

use crate::error::{EngineError, op};
use crate::ops::{
    add, clip, concatenate, divide, multiply, power, refused, scalar, select, subtract,
};

/// Parameters of `Llama3RoPE`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3 {
    /// By how much long periods stretch.
    pub factor: f64,
    /// Wavelengths above `original_max_position_embeddings` over this stretch in full.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_max_position_embeddings` over this stay.
    pub high_freq_factor: f64,
    /// Context of the first training.
    pub original_max_position_embeddings: f64,
}

/// Parameters of `YarnRoPE`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// By how much long periods stretch.
    pub factor: f64,
    /// Context of the first training.
    pub original_max_position_embeddings: f64,
    /// Rotations within that context above which a period stays.
    pub beta_fast: f64,
    /// Rotations within that context below which it stretches in full.
    pub beta_slow: f64,
    /// Numerator of the feature scale.
    pub mscale: f64,
    /// Denominator of the feature scale.
    pub mscale_all_dim: f64,
}

/// Parameters of `LongRoPE` (Ding et al., 2024): the short factors while the sequence is no longer than
/// `original_max_position_embeddings`, the long ones past it, as its authors' `Phi3RotaryEmbedding`
/// does. `SuScaledRoPE` of mlx-lm uses the long ones at every length.
#[derive(Debug, Clone, PartialEq)]
pub struct LongRope {
    /// Context of the first training.
    pub original_max_position_embeddings: f64,
    /// One factor a period, or one for all.
    pub short_factor: Vec<f32>,
    /// One factor a period, or one for all.
    pub long_factor: Vec<f32>,
    /// The factor of the rotated features beside the short factors, where it is given.
    pub short_mscale: Option<f64>,
    /// The factor of the rotated features beside the long factors, where it is given.
    pub long_mscale: Option<f64>,
}

/// Parameters of `ProportionalRoPE`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportional {
    /// Share of the features that turn.
    pub partial_rotary_factor: f64,
    /// Factor of every period.
    pub factor: f64,
}

fn number(value: f64) -> Result<Array, EngineError> {
    scalar(value, Dtype::Float32)
}

fn row(values: &[f32]) -> Array {
    Array::from_slice(values, &[values.len() as i32])
}

/// `base ** (arange(0, rotated, 2) / dims)`.
fn geometric(base: f64, dims: i32, rotated: i32) -> Result<Array, EngineError> {
    let steps: Vec<f32> = (0..rotated).step_by(2).map(|step| step as f32).collect();
    power(&number(base)?, &divide(&row(&steps), &number(f64::from(dims))?)?)
}

pub(super) fn llama3(p: &Llama3, dims: i32, base: f64) -> Result<Array, EngineError> {
    let context = p.original_max_position_embeddings;
    let long = number(context / p.low_freq_factor)?;
    let short = number(context / p.high_freq_factor)?;
    let periods = geometric(base, dims, dims)?;
    let wavelengths = multiply(&number(2.0 * PI)?, &periods)?;
    let above = |bound: &Array| op("greater", wavelengths.gt(bound));
    let stretched = multiply(&periods, &number(p.factor)?)?;
    let periods = select(&above(&long)?, &stretched, &periods)?;
    let below_long = op("less", wavelengths.lt(&long))?;
    let medium = op("logical_and", above(&short)?.logical_and(&below_long))?;
    let smooth = subtract(&divide(&number(context)?, &wavelengths)?, &number(p.low_freq_factor)?)?;
    let smooth = divide(&smooth, &number(p.high_freq_factor - p.low_freq_factor)?)?;
    let rest = divide(&subtract(&number(1.0)?, &smooth)?, &number(p.factor)?)?;
    let blended = divide(&periods, &add(&rest, &smooth)?)?;
    select(&medium, &blended, &periods)
}

pub(super) fn yarn(p: &Yarn, dims: i32, base: f64) -> Result<Array, EngineError> {
    let (low, high) = correction_range(p, dims, base);
    let steps: Vec<f32> = (0..dims / 2).map(|step| step as f32).collect();
    let ramp = divide(&subtract(&row(&steps), &number(low)?)?, &number(high - low)?)?;
    let ramp = clip(&ramp, &number(0.0)?, &number(1.0)?)?;
    let keep = subtract(&number(1.0)?, &ramp)?;
    let short = geometric(base, dims, dims)?;
    let long = multiply(&number(p.factor)?, &short)?;
    let rest = subtract(&number(1.0)?, &keep)?;
    let blend = add(&multiply(&long, &keep)?, &multiply(&short, &rest)?)?;
    divide(&multiply(&long, &short)?, &blend)
}

/// `yarn_find_correction_range`, with the step that keeps its ramp finite.
fn correction_range(p: &Yarn, dims: i32, base: f64) -> (f64, f64) {
    let dims = f64::from(dims);
    let pair_of = |rotations: f64| {
        let tokens = p.original_max_position_embeddings / (rotations * 2.0 * PI);
        (dims * tokens.ln()) / (2.0 * base.ln())
    };
    let low = pair_of(p.beta_fast).floor().max(0.0);
    let high = pair_of(p.beta_slow).ceil().min(dims - 1.0);
    (low, if low == high { high + 0.001 } else { high })
}

impl Yarn {
    /// The factor of the rotated features.
    pub fn input_scale(&self) -> f64 {
        let stretch = self.factor;
        let magnitude =
            |mscale: f64| if stretch <= 1.0 { 1.0 } else { 0.1 * mscale * stretch.ln() + 1.0 };
        magnitude(self.mscale) / magnitude(self.mscale_all_dim)
    }
}

/// Periods under one row of factors.
pub(super) fn long_rope(factors: &[f32], dims: i32, base: f64) -> Result<Array, EngineError> {
    let pairs = (dims + 1) / 2;
    if factors.len() != 1 && factors.len() as i32 != pairs {
        return Err(refused("rope", &format!("{} factors", factors.len()), &format!("{pairs}")));
    }
    multiply(&row(factors), &geometric(base, dims, dims)?)
}

impl LongRope {
    /// The factor of the rotated features where none is given.
    pub fn input_scale(&self, max_position_embeddings: i32) -> f64 {
        let original = self.original_max_position_embeddings;
        let stretch = f64::from(max_position_embeddings) / original;
        if stretch <= 1.0 { 1.0 } else { (1.0 + stretch.ln() / original.ln()).sqrt() }
    }
}

pub(super) fn proportional(p: &Proportional, dims: i32, base: f64) -> Result<Array, EngineError> {
    let rotated = (f64::from(dims) * p.partial_rotary_factor) as i32;
    let turning = multiply(&number(p.factor)?, &geometric(base, dims, rotated)?)?;
    let still = row(&vec![f32::INFINITY; ((dims - rotated) / 2) as usize]);
    concatenate(&[&turning, &still], 0)
}

/// The base of `DynamicNTKScalingRoPE` for a call that ends at position `sequence`.
pub(super) fn dynamic_base(
    factor: f64,
    dims: i32,
    base: f64,
    max_position_embeddings: i32,
    sequence: i32,
) -> f64 {
    let (dims, limit) = (f64::from(dims), f64::from(max_position_embeddings));
    let sequence = f64::from(sequence.max(max_position_embeddings));
    base * ((factor * sequence / limit) - (factor - 1.0)).powf(dims / (dims - 2.0))
}
