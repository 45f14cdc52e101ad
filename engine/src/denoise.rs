//! What a denoising run is asked for, and what it shows and returns.

use mlx_parity_tensor::HostTensor;
use mlx_rs::Array;

use crate::array::to_host;
use crate::error::EngineError;
use crate::generate::Finish;

/// Which positions of the canvas a step commits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampler {
    /// The most certain ones, within the entropy bound of the model's `generation_config` (mlx-optiq's
    /// `entropy-bound`); they are chosen anew in each step.
    EntropyBound,
    /// Those whose sampled token has at least this probability, 0 to 1, and always one (mlx-optiq's
    /// `confidence-threshold`, the default of its `generate`); they stay committed.
    ConfidenceThreshold(f64),
}

/// How to denoise. What is `None` is as the model's `generation_config` says, else as
/// `stream_diffusion_generate` of mlx-optiq defaults to.
#[derive(Debug, Clone, PartialEq)]
pub struct DenoiseOptions {
    /// The most tokens to generate, over all canvases.
    pub max_tokens: Option<usize>,
    /// Denoising steps of a canvas.
    pub denoising_steps: Option<usize>,
    /// No canvas is shorter, unless the longest is.
    pub min_canvas_length: Option<usize>,
    /// No canvas is longer, nor than the model's own length.
    pub max_canvas_length: Option<usize>,
    /// Divides the logits that tokens are sampled from, after the schedule; 0 takes the likeliest.
    pub temperature: f64,
    /// Which positions a step commits.
    pub sampler: Sampler,
    /// Tokens of a prompt that one call takes; all where `None`.
    pub prefill_step_size: Option<usize>,
    /// The seed of `mx.random`: noise and samples are the reference's under the same.
    pub seed: u64,
    /// Ids that end the generation, besides those of the model's `generation_config`.
    pub stop_token_ids: Vec<u32>,
    /// The step, counted from 1 over all canvases, whose named intermediates are kept.
    pub tapped_step: Option<usize>,
}

impl Default for DenoiseOptions {
    fn default() -> Self {
        Self {
            max_tokens: None,
            denoising_steps: None,
            min_canvas_length: None,
            max_canvas_length: None,
            temperature: 0.0,
            sampler: Sampler::ConfidenceThreshold(0.9),
            prefill_step_size: None,
            seed: 0,
            stop_token_ids: Vec::new(),
            tapped_step: None,
        }
    }
}

/// One step of a run: what the model saw and said, and what came of it.
#[derive(Debug)]
pub struct DenoiseStep<'a> {
    /// The canvas, counted from 1.
    pub canvas: usize,
    /// The step of this canvas, counted from 1.
    pub step: usize,
    pub(crate) tensors: Vec<(&'static str, &'a Array)>,
    pub(crate) taps: Vec<(String, HostTensor)>,
}

impl DenoiseStep<'_> {
    /// The state of the step by name, without the batch axis: `tokens` `[n]`, the i32 ids the model
    /// saw; `logits` `[n, vocab]`, raw, in the model's own dtype; `conditioning` `[n, hidden]`, the
    /// soft embeddings it was given, from a canvas's second step on; and unless this is the last step
    /// of all, `uncertainty` `[n]`, entropies in nats or confidences, and `committed` `[n]`, booleans.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn tensors(&self) -> Result<Vec<(&'static str, HostTensor)>, EngineError> {
        let host = |array: &Array| {
            let tensor = to_host(array)?;
            let shape = tensor.shape()[1..].to_vec();
            Ok::<_, EngineError>(HostTensor::new(tensor.dtype(), shape, tensor.into_bytes())?)
        };
        self.tensors.iter().map(|(name, array)| Ok((*name, host(array)?))).collect()
    }

    /// The named intermediates, if this is the tapped step, in the order of the model call.
    pub fn taps(&self) -> &[(String, HostTensor)] {
        &self.taps
    }
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denoised {
    /// The new ids, without the one that ended them.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
}
