//! Activations, composed as `mlx.nn` composes them.
//!
//! `mlx.nn` wraps these in `mx.compile`. The eager compositions here give the compiled bits on the
//! CPU: measured on all 65,536 values of bf16 and f16 and on random f32.

use mlx_rs::Array;

use super::{add, divide, erf, logaddexp, maximum, multiply, power, scalar, sigmoid, square, tanh};
use crate::error::EngineError;

/// `nn.silu`: `x * sigmoid(x)`, in x's dtype.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn silu(x: &Array) -> Result<Array, EngineError> {
    multiply(x, &sigmoid(x)?)
}

/// `nn.gelu`: `x * (1 + erf(x / sqrt(2))) / 2`, every step rounded to x's dtype.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn gelu(x: &Array) -> Result<Array, EngineError> {
    let number = |value: f64| scalar(value, x.dtype());
    let bend = erf(&divide(x, &number(2.0_f64.sqrt())?)?)?;
    divide(&multiply(x, &add(&number(1.0)?, &bend)?)?, &number(2.0)?)
}

/// `nn.gelu_approx`: `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))`, every step
/// rounded to x's dtype.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn gelu_approx(x: &Array) -> Result<Array, EngineError> {
    let dtype = x.dtype();
    let number = |value: f64| scalar(value, dtype);
    let cube = multiply(&number(0.044_715)?, &power(x, &number(3.0)?)?)?;
    let slope = (2.0 / std::f64::consts::PI).sqrt();
    let bend = tanh(&multiply(&number(slope)?, &add(x, &cube)?)?)?;
    multiply(&multiply(&number(0.5)?, x)?, &add(&number(1.0)?, &bend)?)
}

/// `nn.gelu_fast_approx`: `x * sigmoid(1.702 * x)`, every step rounded to x's dtype.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn gelu_fast_approx(x: &Array) -> Result<Array, EngineError> {
    multiply(x, &sigmoid(&multiply(&scalar(1.702, x.dtype())?, x)?)?)
}

/// `nn.relu2`: the square of `max(x, 0)`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn relu2(x: &Array) -> Result<Array, EngineError> {
    square(&maximum(x, &scalar(0.0, x.dtype())?)?)
}

/// `nn.softplus`: `log(exp(x) + exp(0))`, by `mx.logaddexp`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn softplus(x: &Array) -> Result<Array, EngineError> {
    logaddexp(x, &scalar(0.0, x.dtype())?)
}
