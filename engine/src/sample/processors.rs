//! Processors of logits `[1, vocab]`, in their dtype. mlx-lm does not compile them.

use mlx_rs::{Array, Dtype};

use super::SamplerOptions;
use crate::error::EngineError;
use crate::ops::{self, SliceAxis};

/// The processors that the options ask for, in the order of `make_logits_processors`.
pub(super) fn process(
    options: &SamplerOptions,
    history: &Array,
    logits: &Array,
) -> Result<Array, EngineError> {
    let mut logits = logits.clone();
    if !options.logit_bias.is_empty() {
        logits = bias(options, &logits)?;
    }
    if options.repetition_penalty != 0.0 {
        let ids = newest(history, options.repetition_context_size)?;
        logits = repetition(&logits, &ids, options.repetition_penalty)?;
    }
    if options.presence_penalty != 0.0 {
        let ids = newest(history, options.presence_context_size)?;
        logits = presence(&logits, &ids, options.presence_penalty)?;
    }
    if options.frequency_penalty != 0.0 {
        let ids = newest(history, options.frequency_context_size)?;
        logits = frequency(&logits, &ids, options.frequency_penalty)?;
    }
    Ok(logits)
}

/// `tokens[-count:]`, which for 0 is all of them.
fn newest(history: &Array, count: usize) -> Result<Array, EngineError> {
    let length = history.dim(0);
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    let start = if count == 0 { 0 } else { (length - count).max(0) };
    ops::slice(history, &[SliceAxis::range(start, length)])
}

/// `logit_bias_processor`: values in f32, then in the logits' dtype, added there.
fn bias(options: &SamplerOptions, logits: &Array) -> Result<Array, EngineError> {
    let ids: Vec<u32> = options.logit_bias.keys().copied().collect();
    let values: Vec<f32> = options.logit_bias.values().map(|value| *value as f32).collect();
    let count = ids.len() as i32;
    let values = ops::cast(&Array::from_slice(&values, &[1, count]), logits.dtype())?;
    ops::scatter_add(logits, &Array::from_slice(&ids, &[count]), &values, 1)
}

/// `make_repetition_penalty`: once for each id, however often it occurred.
fn repetition(logits: &Array, ids: &Array, penalty: f64) -> Result<Array, EngineError> {
    let dtype = logits.dtype();
    let (selected, penalty) = (ops::take(logits, ids, 1)?, ops::scalar(penalty, dtype)?);
    let negative = ops::less(&selected, &ops::scalar(0.0, dtype)?)?;
    let (more, less) = (ops::multiply(&selected, &penalty)?, ops::divide(&selected, &penalty)?);
    put(logits, ids, &ops::select(&negative, &more, &less)?)
}

/// `make_presence_penalty`: once for each id, however often it occurred.
fn presence(logits: &Array, ids: &Array, penalty: f64) -> Result<Array, EngineError> {
    let selected = ops::take(logits, ids, 1)?;
    put(logits, ids, &ops::subtract(&selected, &ops::scalar(penalty, logits.dtype())?)?)
}

/// `make_frequency_penalty`: subtracted, and rounded, each time an id occurred.
fn frequency(logits: &Array, ids: &Array, penalty: f64) -> Result<Array, EngineError> {
    let each = ops::scalar(-penalty, logits.dtype())?;
    ops::scatter_add(logits, ids, &ops::broadcast_to(&each, &[1, ids.dim(0)])?, 1)
}

/// `logits[:, ids] = values`, for equal values at equal ids.
fn put(logits: &Array, ids: &Array, values: &Array) -> Result<Array, EngineError> {
    let ids = ops::cast(&ops::expand_dims(ids, 0)?, Dtype::Int32)?;
    ops::put_along_axis(logits, &ids, values, 1)
}
