//! `AdamW` (Loshchilov and Hutter, 2019), and the clipping of gradients, op for op as `mlx/optimizers`
//! composes them.

use mlx_rs::{Array, Dtype};

use crate::error::EngineError;
use crate::ops::{
    Axes, add, cast, divide, minimum, multiply, power, rsqrt, scalar, sqrt, square, subtract, sum,
    zeros,
};

/// Numbers of [`AdamW`], with mlx-lm's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWOptions {
    /// What updates are multiplied by.
    pub learning_rate: f64,
    /// How much of the running means of gradients and of their squares is kept.
    pub betas: [f64; 2],
    /// Added to the root of the mean square.
    pub eps: f64,
    /// How much of a parameter is taken off, times the learning rate.
    pub weight_decay: f64,
    /// Whether the means are corrected for having started at 0.
    pub bias_correction: bool,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            learning_rate: 1e-5,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            bias_correction: false,
        }
    }
}

/// The state of an optimizer: `mlx.optimizers.AdamW`.
#[derive(Debug, Clone)]
pub struct AdamW {
    options: AdamWOptions,
    steps: u64,
    /// Running means of gradients and of their squares, of each parameter.
    means: Vec<[Array; 2]>,
}

impl AdamW {
    /// An optimizer that has seen no gradient.
    pub fn new(options: AdamWOptions) -> Self {
        Self { options, steps: 0, means: Vec::new() }
    }

    /// Updates made so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The learning rate of the updates to come: schedules are the caller's.
    pub fn set_learning_rate(&mut self, learning_rate: f64) {
        self.options.learning_rate = learning_rate;
    }

    /// The parameters after one update (`apply_gradients`), each with its gradient and in the order of every
    /// other call.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, as for gradients of other shapes.
    pub fn update(
        &mut self,
        parameters: &[Array],
        gradients: &[Array],
    ) -> Result<Vec<Array>, EngineError> {
        if self.means.is_empty() {
            let still =
                |a: &Array| Ok([zeros(a.shape(), a.dtype())?, zeros(a.shape(), a.dtype())?]);
            self.means = gradients.iter().map(still).collect::<Result<_, EngineError>>()?;
        }
        let (steps, mut updated) = (self.steps + 1, Vec::with_capacity(parameters.len()));
        let mut means = Vec::with_capacity(parameters.len());
        for ((parameter, gradient), old) in parameters.iter().zip(gradients).zip(&self.means) {
            let new = self.options.means(old, gradient)?;
            updated.push(self.options.apply(parameter, gradient.dtype(), &new, steps)?);
            means.push(new);
        }
        (self.steps, self.means) = (steps, means);
        Ok(updated)
    }

    /// The arrays that the next update reads.
    pub(super) fn state(&self) -> impl Iterator<Item = &Array> {
        self.means.iter().flatten()
    }
}

impl AdamWOptions {
    /// Refuses what `mlx.optimizers` refuses.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let refused = |option, found: f64, wanted| {
            Err(EngineError::TrainOption { option, found: found.to_string(), wanted })
        };
        if let Some(beta) = self.betas.into_iter().find(|beta| !(0.0..1.0).contains(beta)) {
            return refused("betas", beta, "numbers in [0, 1)");
        }
        if self.eps.is_nan() || self.eps < 0.0 {
            return refused("eps", self.eps, "at least 0");
        }
        Ok(())
    }

    fn means(&self, [m, v]: &[Array; 2], gradient: &Array) -> Result<[Array; 2], EngineError> {
        let [b1, b2] = self.betas;
        let number = |value| scalar(value, gradient.dtype());
        let m = add(&multiply(&number(b1)?, m)?, &multiply(&number(1.0 - b1)?, gradient)?)?;
        let new = multiply(&number(1.0 - b2)?, &square(gradient)?)?;
        Ok([m, add(&multiply(&number(b2)?, v)?, &new)?])
    }

    /// `AdamW.apply_single`, of a gradient of `dtype`.
    fn apply(
        &self,
        parameter: &Array,
        dtype: Dtype,
        [m, v]: &[Array; 2],
        steps: u64,
    ) -> Result<Array, EngineError> {
        let number = |value| scalar(value, dtype);
        let rate = cast(&scalar(self.learning_rate, Dtype::Float32)?, dtype)?;
        let kept = subtract(&number(1.0)?, &multiply(&rate, &number(self.weight_decay)?)?)?;
        let parameter = multiply(parameter, &kept)?;
        if !self.bias_correction {
            let root = add(&sqrt(v)?, &number(self.eps)?)?;
            return subtract(&parameter, &divide(&multiply(&rate, m)?, &root)?);
        }
        let [c1, c2] = self.corrections(&rate, steps)?;
        let (c1, c2) = (cast(&c1, dtype)?, cast(&c2, dtype)?);
        let root = add(&multiply(&sqrt(v)?, &c2)?, &number(self.eps)?)?;
        subtract(&parameter, &divide(&multiply(&c1, m)?, &root)?)
    }

    /// `lr / (1 - b1**step)` and `rsqrt(1 - b2**step)`, in f32, which a float and an unsigned step make.
    fn corrections(&self, rate: &Array, steps: u64) -> Result<[Array; 2], EngineError> {
        let number = |value| scalar(value, Dtype::Float32);
        let step = cast(&Array::from_slice(&[steps], &[]), Dtype::Float32)?;
        let rest = |beta| subtract(&number(1.0)?, &power(&number(beta)?, &step)?);
        Ok([divide(rate, &rest(self.betas[0])?)?, rsqrt(&rest(self.betas[1])?)?])
    }
}

/// `mlx.optimizers.clip_grad_norm`: the gradients, scaled down where their norm over all of them, summed in
/// their order, is above `max_norm`, and that norm, a scalar.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn clip_grad_norm(
    gradients: &[Array],
    max_norm: f64,
) -> Result<(Vec<Array>, Array), EngineError> {
    let mut total: Option<Array> = None;
    for gradient in gradients {
        let own = sum(&square(gradient)?, Axes::All, false)?;
        let before = total.map_or_else(|| scalar(0.0, own.dtype()), Ok)?;
        total = Some(add(&before, &own)?);
    }
    let norm = sqrt(&total.map_or_else(|| scalar(0.0, Dtype::Float32), Ok)?)?;
    let number = |value| scalar(value, norm.dtype());
    let ratio = divide(&number(max_norm)?, &add(&norm, &number(1e-6)?)?)?;
    let factor = minimum(&ratio, &number(1.0)?)?;
    let clipped = gradients.iter().map(|gradient| multiply(gradient, &factor));
    Ok((clipped.collect::<Result<_, _>>()?, norm))
}
