//! Decode steps as transactions.
//!
//! A compiled step works on copies of the caches' handles: its updates are staged there, those of
//! compiled and of eager layers alike, and adopted once the whole graph stands. A step that fails
//! before leaves the caches as they were, to the bit. Until a trace has been evaluated once the old
//! buffers are held too, since its kernels may fail to compile; later steps let go of them before
//! they are evaluated, so that MLX writes new rows in place.

use mlx_rs::Array;

use super::{Decoder, ids_of};
use crate::cache::KvCache;
use crate::compiled::DecodeMode;
use crate::error::EngineError;
use crate::fault;
use crate::ops;
use crate::taps::Taps;

impl Decoder<'_> {
    /// How later steps run.
    pub fn mode(&self) -> DecodeMode {
        self.sink.segments.mode()
    }

    /// Chooses how later steps run: eagerly by default. Where taps are kept, and in prompts, calls are
    /// eager in any mode.
    ///
    /// # Errors
    /// [`EngineError::NotCompilable`] for a network without segments, [`EngineError::NotCompiled`]
    /// where MLX does not compile; the mode is then as it was.
    pub fn set_mode(&mut self, mode: DecodeMode) -> Result<(), EngineError> {
        if mode != DecodeMode::Eager {
            self.model.compilable()?;
            mode.check_available()?;
        }
        self.sink.segments.set_mode(mode);
        Ok(())
    }

    /// Traces made so far: one for each segment, unless batch sizes change.
    pub fn traces(&self) -> usize {
        self.sink.segments.made()
    }

    /// Lets the next compiled step fail at its `point`-th point, counted from 0; a step with fewer
    /// points succeeds. There is a point before each segment, at the end of each trace, before and
    /// behind each cache update, before the step is evaluated where that is before it is adopted, and
    /// before it is adopted.
    ///
    /// # Errors
    /// [`EngineError::FaultsCompiledOut`] in a build without debug assertions.
    pub fn fail_next_step(&mut self, point: usize) -> Result<(), EngineError> {
        fault::can_fail()?;
        self.failing = Some(point);
        Ok(())
    }

    pub(super) fn is_staged(&self) -> bool {
        self.mode() != DecodeMode::Eager && self.sink.taps == Taps::Off
    }

    /// One more token a row, evaluated: logits `[rows, 1, vocab]`.
    ///
    /// # Errors
    /// As [`Decoder::step`]. The caches are then as they were and the decoder may go on, unless MLX
    /// threw while it evaluated a step whose kernels had all run before.
    pub(super) fn staged_step(&mut self, rows: &[&[u32]]) -> Result<Array, EngineError> {
        self.guarded(|decoder| decoder.expect(1))?;
        let before = self.offset();
        let stale = self.stale(1);
        let checkpoint = self.checkpoint.clone();
        self.note_call(rows);
        let logits = match self.staged(&ids_of(rows)) {
            Ok(logits) => logits,
            Err(error) => {
                self.checkpoint = checkpoint;
                return Err(error);
            }
        };
        drop(checkpoint);
        self.warn_past_training(before);
        self.length.extend(rows);
        self.guarded(|decoder| ops::eval(decoder.caches.iter().flat_map(KvCache::state)))?;
        if let Some(stale) = stale {
            self.caches = stale;
        }
        Ok(logits)
    }

    /// The logits `[rows, 1, vocab]` behind ids `[rows, 1]`, and the caches that go with them, adopted.
    ///
    /// # Errors
    /// As [`Decoder::step`]; the caches are then as they were, and the decoder may go on.
    pub(super) fn staged(&mut self, ids: &Array) -> Result<Array, EngineError> {
        self.sound()?;
        let armed = fault::Armed::new(self.failing.take());
        let mut caches = self.caches.clone();
        let before = self.traces();
        self.model.set_lora(self.plan.lora());
        self.sink.segments.switch(true);
        let logits = self.model.network().forward(ids, &mut caches, &mut self.sink);
        self.sink.segments.switch(false);
        let logits = logits.inspect_err(|_| {
            if fault::keeps_failed(self.model.fault()) {
                self.caches.clone_from(&caches);
            }
        })?;
        self.plan.convert(&mut caches)?;
        if self.traces() > before {
            fault::point(|| "evaluation".to_owned())?;
            ops::eval(caches.iter().flat_map(KvCache::state).chain([&logits]))
                .map_err(EngineError::of_a_kernel)?;
        }
        fault::point(|| "adoption".to_owned())?;
        drop(armed);
        self.caches = caches;
        Ok(logits)
    }
}
