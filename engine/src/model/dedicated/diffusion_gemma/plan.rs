//! The options of a run, checked and completed.

use super::DiffusionGemma;
use crate::denoise::{DenoiseOptions, Sampler};
use crate::error::EngineError;

/// The shortest canvas, where the options name none.
const MIN_CANVAS_LENGTH: usize = 64;

/// The options, completed.
pub(super) struct Plan {
    pub(super) max_tokens: usize,
    pub(super) steps: usize,
    pub(super) shortest: usize,
    pub(super) longest: usize,
    pub(super) temperature: f64,
    pub(super) sampler: Sampler,
    pub(super) prefill_step_size: usize,
    pub(super) seed: u64,
    pub(super) stops: Vec<u32>,
    pub(super) tapped_step: Option<usize>,
}

impl Plan {
    pub(super) fn new(
        model: &DiffusionGemma,
        prompt: &[u32],
        options: &DenoiseOptions,
    ) -> Result<Self, EngineError> {
        let (decoding, vocab_size) = (&model.config.decoding, model.config.dims.vocab_size);
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if let Some(position) = prompt.iter().position(|&id| id as usize >= vocab_size) {
            let id = prompt[position];
            return Err(EngineError::TokenOutOfRange { id, position, vocab_size });
        }
        let above_zero = |option, value: Option<usize>, default: usize| match value {
            Some(0) => Err(refused(option, &0, "1 or more")),
            value => Ok(value.unwrap_or(default)),
        };
        let own = model.config.canvas_length;
        let longest = own.min(above_zero("max_canvas_length", options.max_canvas_length, own)?);
        let shortest =
            above_zero("min_canvas_length", options.min_canvas_length, MIN_CANVAS_LENGTH)?;
        if !(options.temperature >= 0.0 && options.temperature.is_finite()) {
            return Err(refused("temperature", &options.temperature, "0 or more"));
        }
        if let Sampler::ConfidenceThreshold(threshold) = options.sampler
            && !(0.0..=1.0).contains(&threshold)
        {
            return Err(refused("threshold", &threshold, "0 to 1"));
        }
        Ok(Self {
            max_tokens: above_zero("max_tokens", options.max_tokens, decoding.max_new_tokens)?,
            steps: above_zero(
                "denoising_steps",
                options.denoising_steps,
                decoding.denoising_steps,
            )?,
            shortest: shortest.min(longest),
            longest,
            temperature: options.temperature,
            sampler: options.sampler,
            prefill_step_size: above_zero(
                "prefill_step_size",
                options.prefill_step_size,
                prompt.len(),
            )?,
            seed: options.seed,
            stops: [options.stop_token_ids.as_slice(), &decoding.stop_token_ids].concat(),
            tapped_step: options.tapped_step,
        })
    }
}

fn refused(option: &'static str, found: &impl ToString, wanted: &'static str) -> EngineError {
    EngineError::DenoiseOption { option, found: found.to_string(), wanted }
}
