//! Sampling: from a step's logits to the next id, as `mlx_lm/sample_utils.py` and `generate_step` of
//! `mlx_lm/generate.py` go there.
//!
//! The order is theirs: processors of the logits (bias, repetition, presence, frequency), log
//! probabilities in the model's dtype, filters (top-p, min-p, XTC, top-k), and one draw at a temperature.
//! What they wrap in `mx.compile` is composed here with the constants that the compiled kernels hold.

mod compiled;
mod filters;
mod options;
mod processors;

use mlx_rs::Array;

pub use options::SamplerOptions;

use crate::error::EngineError;
use crate::ops::{self, Keys};

/// One sequence's sampler: checked options, and the keys not drawn yet.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplerOptions,
    vocab_size: i32,
    keys: Keys,
}

impl Sampler {
    /// A sampler for logits over `vocab_size` ids, its keys those of `mx.random.seed(options.seed)`.
    ///
    /// # Errors
    /// [`EngineError::SamplerOption`] for an option out of its range, [`EngineError::Op`] where MLX
    /// throws.
    pub fn new(options: SamplerOptions, vocab_size: usize) -> Result<Self, EngineError> {
        options.check(vocab_size)?;
        let keys = Keys::seeded(options.seed)?;
        Ok(Self { options, vocab_size: vocab_size as i32, keys })
    }

    /// The next id, u32 `[1]`, behind the ids of `history`, `[n]`, whose last has the logits `[1, vocab]`.
    /// Nothing is evaluated.
    ///
    /// # Errors
    /// As [`Sampler::process`].
    pub fn sample(&mut self, history: &Array, logits: &Array) -> Result<Array, EngineError> {
        let logits = self.process(history, logits)?;
        let logprobs = ops::subtract(&logits, &ops::log_sum_exp(&logits)?)?;
        let filtered = self.filter(&logprobs)?;
        self.choose(&filtered)
    }

    /// The logits `[1, vocab]` after `make_logits_processors`, in their own dtype: bias, then the penalties
    /// for repetition, presence and frequency in the ids of `history`, `[n]`, prompt included. Ids of the
    /// history are not checked.
    ///
    /// # Errors
    /// [`EngineError::Op`] for logits of another shape and where MLX throws.
    pub fn process(&self, history: &Array, logits: &Array) -> Result<Array, EngineError> {
        self.fits(logits)?;
        processors::process(&self.options, history, logits)
    }

    /// Log probabilities `[1, vocab]` with -inf for what `make_sampler` filters out: top-p, min-p, XTC (which
    /// draws a key), then top-k. At temperature 0 there are no filters.
    ///
    /// # Errors
    /// As [`Sampler::process`].
    pub fn filter(&mut self, logprobs: &Array) -> Result<Array, EngineError> {
        self.fits(logprobs)?;
        if self.options.is_greedy() {
            return Ok(logprobs.clone());
        }
        filters::filter(&self.options, &mut self.keys, logprobs)
    }

    /// An id, u32 `[1]`, from filtered log probabilities `[1, vocab]`: one draw at the temperature
    /// (`categorical_sampling`), or at temperature 0 the likeliest, which takes no key.
    ///
    /// # Errors
    /// As [`Sampler::process`].
    pub fn choose(&mut self, filtered: &Array) -> Result<Array, EngineError> {
        self.fits(filtered)?;
        if self.options.is_greedy() {
            return ops::argmax_last(filtered);
        }
        compiled::categorical(filtered, self.options.temp, &self.keys.draw()?)
    }

    /// Whether ids that came before matter.
    pub(crate) fn looks_back(&self) -> bool {
        self.options.penalises()
    }

    fn fits(&self, logits: &Array) -> Result<(), EngineError> {
        if logits.shape() == [1, self.vocab_size] {
            return Ok(());
        }
        let found = format!("logits of shape {:?}", logits.shape());
        Err(ops::refused("sample", &found, &format!("[1, {}]", self.vocab_size)))
    }
}
