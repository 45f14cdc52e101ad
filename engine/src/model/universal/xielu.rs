//! `XieLU` of `mlx_lm/models/activations.py`.

use mlx_rs::Array;

use crate::error::{EngineError, op};
use crate::ops;
use crate::place::Place;
use crate::weights::Weights;

/// `alpha_p x^2 + beta x` above 0, `(expm1(min(x, eps)) - x) alpha_n + beta x` elsewhere, with
/// `softplus` of the stored slopes; all of its numbers are scalars of the checkpoint.
pub(super) struct Xielu {
    alpha_p: Array,
    alpha_n: Array,
    beta: Array,
    eps: Array,
}

impl Xielu {
    /// The function of the feed-forward block at a place.
    pub(super) fn load(weights: &mut Weights, mlp: &Place) -> Result<Self, EngineError> {
        let place = mlp.join("act_fn");
        let mut scalar = |name: &str| {
            let path = format!("{}.{name}", place.path());
            // `sanitize` squeezes the slopes.
            let shape = weights.shape(&path)?.filter(|shape| *shape == [1]).unwrap_or_default();
            let found = weights.floats(&path, &shape)?;
            if shape.is_empty() { Ok(found) } else { ops::reshape(&found, &[]) }
        };
        Ok(Self {
            alpha_p: scalar("alpha_p")?,
            alpha_n: scalar("alpha_n")?,
            beta: scalar("beta")?,
            eps: scalar("eps")?,
        })
    }

    /// x of any shape to the same, every step rounded to its dtype.
    pub(super) fn apply(&self, x: &Array) -> Result<Array, EngineError> {
        let above = ops::softplus(&self.alpha_p)?;
        let below = ops::add(&self.beta, &ops::softplus(&self.alpha_n)?)?;
        let line = ops::multiply(&self.beta, x)?;
        let bend = op("minimum", mlx_rs::ops::minimum(x, &self.eps))?;
        let curve = ops::multiply(&ops::subtract(&ops::expm1(&bend)?, x)?, &below)?;
        let positive = op("greater", x.gt(&ops::scalar(0.0, x.dtype())?))?;
        ops::select(
            &positive,
            &ops::add(&ops::multiply(&above, &ops::square(x)?)?, &line)?,
            &ops::add(&curve, &line)?,
        )
    }
}
