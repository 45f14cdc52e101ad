//! Which positions of a canvas keep their token, and what the next step is told of all of them:
//! the helpers of `optiq/vlm/_mlxvlm/generate/diffusion.py`.

use mlx_rs::{Array, Dtype};

use crate::error::EngineError;
use crate::ops::{self, Axes};

const LAST: Axes<'static> = Axes::Of(&[-1]);

fn number(value: f64) -> Result<Array, EngineError> {
    ops::scalar(value, Dtype::Float32)
}

/// Probabilities `[1, n, vocab]` and entropies in nats `[1, n]` of f32 logits
/// (`_diffusion_entropy_probs_chain`, `_diffusion_token_entropy`).
pub(super) fn entropy(logits: &Array) -> Result<(Array, Array), EngineError> {
    let log_probs = ops::subtract(logits, &ops::logsumexp(logits, LAST, true)?)?;
    let probs = ops::exp(&log_probs)?;
    let entropy = ops::negative(&ops::sum(&ops::multiply(&probs, &log_probs)?, LAST, false)?)?;
    Ok((probs, entropy))
}

/// The probability of each of `tokens` `[1, n]` (`_diffusion_token_probability`).
pub(super) fn confidence(logits: &Array, tokens: &Array) -> Result<Array, EngineError> {
    let at = ops::expand_dims(tokens, -1)?;
    let score = ops::squeeze(&ops::take_along_axis(logits, &at, -1)?, -1)?;
    ops::exp(&ops::subtract(&score, &ops::logsumexp(logits, LAST, false)?)?)
}

/// The mean embedding under `probs` `[1, n, vocab]`, with `table` `[vocab, hidden]`, in the table's
/// dtype.
pub(super) fn soft_embeddings(
    probs: &Array,
    table: &Array,
    embed_scale: f64,
) -> Result<Array, EngineError> {
    let mean = ops::matmul(&ops::cast(probs, table.dtype())?, table)?;
    ops::multiply(&mean, &ops::scalar(embed_scale, table.dtype())?)
}

/// The most certain positions, as many as keep the sum of their entropies without the largest within
/// `bound` (`_diffusion_entropy_transfer_mask`).
pub(super) fn within_entropy(entropy: &Array, bound: f64) -> Result<Array, EngineError> {
    let order = ops::argsort(entropy, -1)?;
    let sorted = ops::take_along_axis(entropy, &order, -1)?;
    let sum = ops::cumsum(&sorted, -1, false, true)?;
    let largest = ops::cummax(&sorted, -1, false, true)?;
    let chosen = ops::less_equal(&ops::subtract(&sum, &largest)?, &number(bound)?)?;
    let none = ops::zeros(chosen.shape(), Dtype::Bool)?;
    ops::put_along_axis(&none, &order, &chosen, -1)
}

/// The hidden positions of at least `threshold` confidence, and of several below it the best
/// (`_diffusion_confidence_transfer_mask`).
pub(super) fn confident(
    confidence: &Array,
    hidden: &Array,
    threshold: f64,
) -> Result<Array, EngineError> {
    let sure = ops::greater_equal(confidence, &number(threshold)?)?;
    let chosen = ops::logical_and(hidden, &sure)?;
    let forced =
        ops::logical_and(&ops::any(hidden, -1)?, &ops::logical_not(&ops::any(&chosen, -1)?)?)?;
    let candidates = ops::select(hidden, confidence, &number(f64::NEG_INFINITY)?)?;
    let best = ops::expand_dims(&ops::argmax_last(&candidates)?, 1)?;
    let positions = ops::expand_dims(&ops::arange(0, confidence.dim(-1))?, 0)?;
    let is_best = ops::equal(&positions, &best)?;
    let forced = ops::logical_and(&is_best, &ops::expand_dims(&forced, 1)?)?;
    ops::logical_or(&chosen, &forced)
}

/// Whether the mean entropy of f32 logits lies below `threshold`, as a boolean array.
pub(super) fn certain(logits: &Array, threshold: f64) -> Result<Array, EngineError> {
    let (_, entropy) = entropy(logits)?;
    ops::less(&ops::mean(&entropy, Axes::All, false)?, &number(threshold)?)
}
