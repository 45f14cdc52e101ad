//! Generation, greedy or sampled.

use std::ops::ControlFlow;

use mlx_rs::Array;

use crate::array::item;
use crate::compiled::DecodeMode;
use crate::composition::Composition;
use crate::decoder::{DEFAULT_PREFILL_STEP_SIZE, Decoder};
use crate::error::{EngineError, op};
use crate::model::Model;
use crate::ops;
use crate::sample::{Sampler, SamplerOptions};

/// When to stop, and how to split the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerateOptions {
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// Chunk length of the prompt.
    pub prefill_step_size: usize,
    /// Ids that end the generation; they are not part of it.
    pub eos_token_ids: Vec<u32>,
    /// How the tokens behind the prompt are decoded.
    pub mode: DecodeMode,
    /// What answers are computed with.
    pub composition: Composition,
}

impl GenerateOptions {
    /// Up to `max_tokens` tokens, ended by what the model's configs name.
    pub fn for_model(model: &Model, max_tokens: usize) -> Self {
        Self {
            max_tokens,
            prefill_step_size: DEFAULT_PREFILL_STEP_SIZE,
            eos_token_ids: model.eos_token_ids().to_vec(),
            mode: DecodeMode::default(),
            composition: Composition::l1(),
        }
    }
}

/// What was generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The new ids, without the one that ended them.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model chose this end id.
    Eos(u32),
    /// `max_tokens` were generated.
    Length,
    /// The callback broke off.
    Stopped,
}

/// Generates greedily from a prompt, as `generate_step` of `mlx_lm/generate.py` with its greedy
/// sampler. While an id goes to `on_token`, the next one is being computed, as there.
///
/// # Errors
/// As [`Decoder::with`], [`Decoder::set_mode`] and [`Decoder::prefill`].
pub fn generate(
    model: &Model,
    prompt: &[u32],
    options: &GenerateOptions,
    on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generated, EngineError> {
    run(model, prompt, options, greedy, on_token)
}

/// [`generate`] with a sampler's choice in the place of the likeliest id, drawn from a fresh
/// [`Sampler`] of the model's vocabulary. Its penalties look back at the prompt too.
///
/// # Errors
/// [`EngineError::SamplerOption`] before anything is computed; else as [`generate`].
pub fn generate_sampled(
    model: &Model,
    prompt: &[u32],
    options: &GenerateOptions,
    sampler: &SamplerOptions,
    on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generated, EngineError> {
    let mut sampler = Sampler::new(sampler.clone(), model.vocab_size())?;
    let mut history = Array::from_slice(prompt, &[prompt.len() as i32]);
    let choose = |logits: &Array| {
        let chosen = sampler.sample(&history, logits)?;
        if sampler.looks_back() {
            history = ops::concatenate(&[&history, &chosen], 0)?;
        }
        Ok(chosen)
    };
    run(model, prompt, options, choose, on_token)
}

fn run(
    model: &Model,
    prompt: &[u32],
    options: &GenerateOptions,
    mut choose: impl FnMut(&Array) -> Result<Array, EngineError>,
    mut on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generated, EngineError> {
    let mut launch = |logits: &Array| {
        let chosen = choose(&ops::reshape(logits, &[1, -1])?)?;
        op("async_eval", mlx_rs::transforms::async_eval([&chosen]))?;
        Ok::<_, EngineError>(chosen)
    };
    let mut decoder = Decoder::with(model, options.prefill_step_size, &options.composition)?;
    decoder.set_mode(options.mode)?;
    let mut ids = Vec::new();
    if options.max_tokens == 0 {
        decoder.prompt_logits(prompt)?;
        return Ok(Generated { ids, finish: Finish::Length });
    }
    let mut chosen = launch(&decoder.prompt_logits(prompt)?)?;
    loop {
        let last = ids.len() + 1 == options.max_tokens;
        let ahead = if last || !decoder.looks_ahead() {
            None
        } else {
            Some(launch(&decoder.next_logits(&chosen)?)?)
        };
        let id = item("choice", &chosen)?;
        if options.eos_token_ids.contains(&id) {
            return Ok(Generated { ids, finish: Finish::Eos(id) });
        }
        ids.push(id);
        if on_token(id).is_break() {
            return Ok(Generated { ids, finish: Finish::Stopped });
        }
        if last {
            return Ok(Generated { ids, finish: Finish::Length });
        }
        chosen = match ahead {
            Some(ahead) => ahead,
            None => launch(&decoder.step_logits(&[id])?)?,
        };
    }
}

/// The likeliest id of logits `[1, vocab]`, u32 `[1]`. The reference takes the argmax of log probabilities
/// in the model's dtype, whose rounding can make equals of logits that were not.
pub(crate) fn greedy(logits: &Array) -> Result<Array, EngineError> {
    let logprobs = ops::subtract(logits, &ops::log_sum_exp(logits)?)?;
    ops::argmax_last(&logprobs)
}
