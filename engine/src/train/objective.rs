//! What is made small.

use mlx_rs::{Array, Dtype};

use super::batch::Rows;
use crate::error::EngineError;
use crate::ops::{
    self, Axes, add, cast, divide, exp, log1p, mean, multiply, negative, refused, scalar, softplus,
    subtract, sum,
};

/// A loss of the cross entropies `[rows, positions]` of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// `default_loss` of `mlx_lm/tuner/trainer.py`: the mean over all targets that count, in f32.
    NextToken,
    /// ORPO (Hong et al., 2024): the mean over the targets of chosen answers, less `weight` times the mean of
    /// log sigmoid of the log odds ratio of chosen over rejected answers, an answer's probability being
    /// the geometric mean over its targets. The first half of the rows is chosen, the second, in the same
    /// order, rejected.
    Orpo {
        /// Lambda of the paper.
        weight: f64,
    },
}

impl Objective {
    /// The loss, a scalar f32, and the number of targets that it is a mean of, i32.
    pub(super) fn of(self, losses: &Array, rows: &Rows) -> Result<[Array; 2], EngineError> {
        match self {
            Self::NextToken => next_token(losses, &rows.mask()?),
            Self::Orpo { weight } => orpo(losses, &rows.mask()?, weight),
        }
    }

    /// Refuses rows that it has no meaning for.
    pub(super) fn check(self, rows: &Rows) -> Result<(), EngineError> {
        match self {
            Self::Orpo { .. } if rows.rows() % 2 != 0 => {
                Err(refused("orpo", &format!("{} rows", rows.rows()), "as many chosen as rejected"))
            }
            _ => Ok(()),
        }
    }
}

fn next_token(losses: &Array, mask: &Array) -> Result<[Array; 2], EngineError> {
    let counted = multiply(losses, mask)?;
    let tokens = sum(mask, Axes::All, false)?;
    let total = sum(&cast(&counted, Dtype::Float32)?, Axes::All, false)?;
    Ok([divide(&total, &tokens)?, tokens])
}

fn orpo(losses: &Array, mask: &Array, weight: f64) -> Result<[Array; 2], EngineError> {
    let number = |value| scalar(value, Dtype::Float32);
    let counted = multiply(&cast(losses, Dtype::Float32)?, mask)?;
    let totals = sum(&counted, Axes::Of(&[1]), false)?;
    let counts = sum(mask, Axes::Of(&[1]), false)?;
    let [chosen, rejected] = halves(&negative(&divide(&totals, &counts)?)?)?;
    let odds = subtract(&log_odds(&chosen)?, &log_odds(&rejected)?)?;
    let preferred = negative(&softplus(&negative(&odds)?)?)?;
    let preference = multiply(&number(weight)?, &mean(&preferred, Axes::All, false)?)?;
    let ([total, _], [tokens, _]) = (halves(&totals)?, halves(&counts)?);
    let tokens = sum(&tokens, Axes::All, false)?;
    let likelihood = divide(&sum(&total, Axes::All, false)?, &tokens)?;
    Ok([add(&likelihood, &negative(&preference)?)?, tokens])
}

/// `log(p / (1 - p))` of log p.
fn log_odds(log_p: &Array) -> Result<Array, EngineError> {
    subtract(log_p, &log1p(&negative(&exp(log_p)?)?)?)
}

fn halves(a: &Array) -> Result<[Array; 2], EngineError> {
    let (n, half) = (a.dim(0), a.dim(0) / 2);
    let part = |start, stop| ops::slice(a, &[ops::SliceAxis::range(start, stop)]);
    Ok([part(0, half)?, part(half, n)?])
}
