//! Teacher-forced decoding with mlx-lm's split of the prompt.

use mlx_parity_tensor::HostTensor;
use mlx_rs::Array;

use crate::array::to_host;
use crate::cache::KvCache;
use crate::error::{EngineError, op};
use crate::model::Model;
use crate::ops;
use crate::taps::{TapSink, Taps};

/// The chunk length that `generate_step` of `mlx_lm/generate.py` defaults to.
pub const DEFAULT_PREFILL_STEP_SIZE: usize = 2048;

/// A model and the caches of one sequence.
pub struct Decoder<'m> {
    model: &'m Model,
    caches: Vec<KvCache>,
    prefill_step_size: usize,
    steps: usize,
    sink: TapSink,
    tapped: Vec<(String, HostTensor)>,
    failed: bool,
}

impl<'m> Decoder<'m> {
    /// A decoder at the start of a sequence.
    pub fn new(model: &'m Model, prefill_step_size: usize) -> Self {
        Self {
            model,
            caches: model.network().new_caches(),
            prefill_step_size,
            steps: 0,
            sink: TapSink::default(),
            tapped: Vec::new(),
            failed: false,
        }
    }

    /// Tokens seen so far.
    pub fn offset(&self) -> usize {
        self.caches.first().map_or(0, |cache| cache.offset() as usize)
    }

    /// Chooses the intermediates that later calls keep.
    pub fn set_taps(&mut self, taps: Taps) {
        self.sink.taps = taps;
    }

    /// Takes the intermediates kept since the last call, in the order of the model calls. A name
    /// stands once for each model call: a prefill in three chunks gives it three times.
    pub fn take_taps(&mut self) -> Vec<(String, HostTensor)> {
        std::mem::take(&mut self.tapped)
    }

    /// Runs a prompt as `generate_step` does: all ids but the last in chunks of the prefill step
    /// size, the caches evaluated after each, then the last id alone. Returns the logits of all
    /// positions, `[ids, vocab]`, in the model's dtype.
    ///
    /// # Errors
    /// [`EngineError::EmptyPrompt`], [`EngineError::TokenOutOfRange`] and
    /// [`EngineError::ZeroPrefillStep`] before anything is computed; [`EngineError::Op`] where MLX
    /// throws, and [`EngineError::DecoderFailed`] on every call after that.
    pub fn prefill(&mut self, ids: &[u32]) -> Result<HostTensor, EngineError> {
        let mut bytes = Vec::new();
        let mut dtype = self.model.dtype();
        self.run_prompt(ids, |logits| {
            let logits = to_host(logits)?;
            dtype = logits.dtype();
            bytes.extend(logits.into_bytes());
            Ok(())
        })?;
        Ok(HostTensor::new(dtype, vec![ids.len(), self.model.vocab_size()], bytes)?)
    }

    /// Runs one more token and returns its logits, `[1, vocab]`, in the model's dtype.
    ///
    /// # Errors
    /// [`EngineError::TokenOutOfRange`] before anything is computed; else as [`Decoder::prefill`].
    pub fn step(&mut self, id: u32) -> Result<HostTensor, EngineError> {
        let logits = to_host(&self.step_logits(id)?)?;
        let shape = vec![1, self.model.vocab_size()];
        Ok(HostTensor::new(logits.dtype(), shape, logits.into_bytes())?)
    }

    /// [`Decoder::prefill`] that copies nothing out: the logits of the last position, `[1, 1, vocab]`.
    pub(crate) fn prompt_logits(&mut self, ids: &[u32]) -> Result<Array, EngineError> {
        let mut last = None;
        self.run_prompt(ids, |logits| {
            last = Some(logits.clone());
            Ok(())
        })?;
        last.ok_or(EngineError::EmptyPrompt)
    }

    /// [`Decoder::step`] that copies nothing out: `[1, 1, vocab]`.
    pub(crate) fn step_logits(&mut self, id: u32) -> Result<Array, EngineError> {
        self.check(&[id])?;
        self.steps += 1;
        if let Some(fault) = self.model.fault() {
            fault.strike(self.steps);
        }
        self.guarded(|decoder| decoder.call(&[id], &mut |_| Ok(())))
    }

    fn run_prompt(
        &mut self,
        ids: &[u32],
        mut each: impl FnMut(&Array) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let (last, head) = ids.split_last().ok_or(EngineError::EmptyPrompt)?;
        if self.prefill_step_size == 0 {
            return Err(EngineError::ZeroPrefillStep);
        }
        self.check(ids)?;
        self.guarded(|decoder| {
            for chunk in head.chunks(decoder.prefill_step_size) {
                decoder.call(chunk, &mut each)?;
                op("clear_cache", mlx_rs::memory::clear_cache())?;
            }
            decoder.call(&[*last], &mut each)?;
            Ok(())
        })
    }

    /// One model call: builds the graph, evaluates the caches, hands the logits `[1, n, vocab]` out.
    fn call(
        &mut self,
        ids: &[u32],
        each: &mut impl FnMut(&Array) -> Result<(), EngineError>,
    ) -> Result<Array, EngineError> {
        // The reference makes its ids from Python integers: i32.
        let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        let ids = Array::from_slice(&ids, &[1, ids.len() as i32]);
        let network = self.model.network();
        let before = self.offset();
        let logits = network.forward(&ids, &mut self.caches, &mut self.sink)?;
        self.warn_past_training(before);
        ops::eval(self.caches.iter().flat_map(KvCache::state))?;
        each(&logits)?;
        self.tapped.extend(self.sink.drain()?);
        Ok(logits)
    }

    fn warn_past_training(&self, before: usize) {
        let limit = self.model.max_positions();
        if let Some(limit) = limit.filter(|limit| (before..self.offset()).contains(limit)) {
            tracing::warn!(limit, "past the positions the model was trained for");
        }
    }

    /// Marks the decoder as failed if `work` fails: its caches may then differ in length.
    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        if self.failed {
            return Err(EngineError::DecoderFailed);
        }
        self.failed = true;
        let result = work(self)?;
        self.failed = false;
        Ok(result)
    }

    fn check(&self, ids: &[u32]) -> Result<(), EngineError> {
        let vocab_size = self.model.vocab_size();
        match ids.iter().position(|&id| id as usize >= vocab_size) {
            Some(position) => {
                Err(EngineError::TokenOutOfRange { id: ids[position], position, vocab_size })
            }
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Decoder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("model", self.model)
            .field("offset", &self.offset())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
