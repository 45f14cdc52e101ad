//! Draws as `mx.compile` computes them.
//!
//! A compiled kernel holds its constants with 7 significant digits ([`ops::constant`]), and
//! `mx.random.uniform` is made of constants: its values differ from those of the same key outside.

use mlx_rs::{Array, Dtype};

use crate::error::EngineError;
use crate::ops::{self, Axes, constant};

/// `mx.random.uniform` of the shape `[1]` in f32 under `mx.compile`: 32 random bits over the largest u32,
/// below 1. The steps with its bounds 0 and 1 change no bit and are left out.
pub(super) fn uniform(key: &Array) -> Result<Array, EngineError> {
    let bits = ops::cast(&ops::random_bits(&[1], key)?, Dtype::Float32)?;
    let part = ops::divide(&bits, &constant(f64::from(u32::MAX), Dtype::Float32)?)?;
    let below_one = f64::from(1.0_f32.next_down());
    ops::minimum(&part, &constant(below_one, Dtype::Float32)?)
}

/// `categorical_sampling`: `mx.random.categorical(logprobs * (1 / temp))` under `mx.compile`, for
/// `[1, vocab]`: u32 `[1]`. The product is in the log probabilities' dtype, the rest in f32: weights beside
/// the largest, their sum, and the last position before which they sum up to no more than a uniform part of
/// it.
pub(super) fn categorical(logprobs: &Array, temp: f64, key: &Array) -> Result<Array, EngineError> {
    let scaled = ops::multiply(logprobs, &constant(1.0 / temp, logprobs.dtype())?)?;
    let scaled = ops::cast(&ops::reshape(&scaled, &[-1])?, Dtype::Float32)?;
    let weights = ops::exp(&ops::subtract(&scaled, &ops::max(&scaled, Axes::All, false)?)?)?;
    let before = ops::cumsum(&weights, 0, false, false)?;
    let drawn = ops::multiply(&uniform(key)?, &ops::sum(&weights, Axes::All, false)?)?;
    let after = ops::searchsorted_right(&before, &drawn)?;
    ops::subtract(&after, &Array::from_slice(&[1_u32], &[]))
}
