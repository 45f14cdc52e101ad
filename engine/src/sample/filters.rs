//! Filters of log probabilities `[1, vocab]`, in their dtype: what may not be drawn becomes -inf.

use mlx_rs::{Array, Dtype};

use super::{SamplerOptions, compiled};
use crate::error::EngineError;
use crate::ops::{self, Axes, Keys, SliceAxis, constant};

/// The filters that the options ask for, in the order of `make_sampler`.
pub(super) fn filter(
    options: &SamplerOptions,
    keys: &mut Keys,
    logprobs: &Array,
) -> Result<Array, EngineError> {
    let mut logprobs = logprobs.clone();
    if 0.0 < options.top_p && options.top_p < 1.0 {
        logprobs = top_p(&logprobs, options.top_p)?;
    }
    if options.min_p != 0.0 {
        logprobs = min_p(&logprobs, options.min_p, options.min_tokens_to_keep)?;
    }
    if options.xtc_probability > 0.0 {
        logprobs = xtc(&logprobs, options, &keys.draw()?)?;
    }
    if options.top_k > 0 {
        logprobs = top_k(&logprobs, options.top_k)?;
    }
    Ok(logprobs)
}

/// `apply_top_p`: from the likeliest down until they hold `part` of all probability, in f32. Equals of the
/// last one stay.
fn top_p(logprobs: &Array, part: f64) -> Result<Array, EngineError> {
    let sorted = ops::sort(logprobs, -1)?;
    let probs = ops::exp(&ops::cast(&sorted, Dtype::Float32)?)?;
    let above = ops::cumsum(&probs, -1, true, false)?;
    let first = |a: &Array| ops::slice_last(a, SliceAxis::range(0, 1));
    let total = ops::add(&first(&above)?, &first(&probs)?)?;
    let held = ops::multiply(&constant(part, Dtype::Float32)?, &total)?;
    let dropped = ops::sum(&ops::greater_equal(&above, &held)?, Axes::Of(&[-1]), true)?;
    let threshold = ops::take_along_axis(&sorted, &dropped, -1)?;
    without(&ops::less(logprobs, &threshold)?, logprobs)
}

/// `apply_min_p`: those of at least `part` of the likeliest one's probability, and the likeliest `keep` in
/// any case.
fn min_p(logprobs: &Array, part: f64, keep: usize) -> Result<Array, EngineError> {
    let largest = ops::max(logprobs, Axes::Of(&[-1]), true)?;
    let least = ops::add(&largest, &constant(part.ln(), logprobs.dtype())?)?;
    let mut dropped = ops::less(logprobs, &least)?;
    if keep > 1 {
        let keep = keep as i32;
        let order = ops::argpartition(logprobs, -keep, -1)?;
        let vocab = order.dim(-1);
        let likeliest = ops::slice_last(&order, SliceAxis::range(vocab - keep, vocab))?;
        dropped = ops::put_along_axis(&dropped, &likeliest, &Array::from_bool(false), -1)?;
    }
    without(&dropped, logprobs)
}

/// `apply_xtc`: with the options' chance drops all of more probability than the least likely one above the
/// threshold, but for special ids. The chance is drawn whatever the probabilities.
fn xtc(logprobs: &Array, options: &SamplerOptions, key: &Array) -> Result<Array, EngineError> {
    let probs = ops::softmax(logprobs, false)?;
    let dtype = probs.dtype();
    let above = ops::greater(&probs, &constant(options.xtc_threshold, dtype)?)?;
    let none = ops::scalar(f64::INFINITY, dtype)?;
    let least = ops::min(&ops::select(&above, &probs, &none)?, Axes::Of(&[-1]), true)?;
    let mut dropped = ops::greater(&probs, &least)?;
    if !options.xtc_special_tokens.is_empty() {
        let ids = &options.xtc_special_tokens;
        let ids = Array::from_slice(ids, &[1, ids.len() as i32]);
        dropped = ops::put_along_axis(&dropped, &ids, &Array::from_bool(false), -1)?;
    }
    let chance = constant(options.xtc_probability, Dtype::Float32)?;
    let spared = ops::greater(&compiled::uniform(key)?, &chance)?;
    ops::select(&spared, logprobs, &without(&dropped, logprobs)?)
}

/// `apply_top_k`: the `count` likeliest; of equals, which of them `mx.argpartition` puts first.
fn top_k(logprobs: &Array, count: usize) -> Result<Array, EngineError> {
    let count = count as i32;
    let order = ops::argpartition(&ops::negative(logprobs)?, count - 1, -1)?;
    let rest = ops::slice_last(&order, SliceAxis::range(count, order.dim(-1)))?;
    ops::put_along_axis(logprobs, &rest, &nothing(logprobs.dtype())?, -1)
}

fn without(dropped: &Array, logprobs: &Array) -> Result<Array, EngineError> {
    ops::select(dropped, &nothing(logprobs.dtype())?, logprobs)
}

/// The logarithm of no probability.
fn nothing(dtype: Dtype) -> Result<Array, EngineError> {
    ops::scalar(f64::NEG_INFINITY, dtype)
}
