//! What a decoder holds, to be taken up by another.

use super::Decoder;
use crate::cache::KvCache;
use crate::composition::Plan;
use crate::error::EngineError;
use crate::length::Length;
use crate::model::Model;

/// The caches of one sequence and what goes with them.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// Identifies the model, with its adapter.
    model: String,
    plan: Plan,
    caches: Vec<KvCache>,
    length: Length,
}

impl Snapshot {
    /// Bytes of the caches.
    pub(crate) fn bytes(&self) -> usize {
        self.caches.iter().map(KvCache::bytes).sum()
    }

    /// Whether another is of the same model and composition.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.model == other.model && self.plan.text() == other.plan.text()
    }

    /// Whether a decoder is of the same model and composition.
    pub(crate) fn fits(&self, decoder: &Decoder) -> bool {
        // A bounded decoder's windows are no composition of its own; packing may be yet to come.
        let windows = |caches: &[KvCache]| caches.iter().map(KvCache::window).collect::<Vec<_>>();
        self.model == decoder.model.cache_form(&decoder.plan).model
            && self.plan.text() == decoder.plan.text()
            && windows(&self.caches) == windows(&decoder.caches)
    }

    /// Whether the newest `count` tokens can be taken back.
    pub(crate) fn can_go_back(&self, count: usize) -> bool {
        let seen = self.caches.first().map_or(0, |cache| cache.offset() as usize);
        let left = seen.saturating_sub(count);
        let unpacks = self.plan.packs_at().is_some_and(|at| (left..seen).contains(&(at - 1)));
        let alone = self.caches.iter().map(KvCache::revocable).min().unwrap_or(0) as usize;
        count == 0 || (!unpacks && count <= alone)
    }
}

impl<'m> Decoder<'m> {
    /// A decoder that goes on behind caches of a model, with plain rows.
    pub(crate) fn behind(model: &'m Model, prefill_step_size: usize, caches: Vec<KvCache>) -> Self {
        let mut decoder = Self::start(model, prefill_step_size, Plan::l1(), caches);
        decoder.length.replace(decoder.offset());
        decoder
    }

    /// Its caches.
    ///
    /// # Errors
    /// [`EngineError::DecoderFailed`] after a failed call.
    pub(crate) fn into_caches(self) -> Result<Vec<KvCache>, EngineError> {
        self.sound()?;
        Ok(self.caches)
    }

    /// What it holds; arrays are shared until one of the two writes.
    ///
    /// # Errors
    /// [`EngineError::BatchSize`] for several sequences, [`EngineError::DecoderFailed`] after a failed
    /// call.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, EngineError> {
        self.sound()?;
        let batch = self.caches.first().and_then(KvCache::batch);
        if let Some(found) = batch.filter(|batch| *batch != 1) {
            return Err(EngineError::BatchSize { found, wanted: 1 });
        }
        Ok(Snapshot {
            model: self.model.cache_form(&self.plan).model.to_owned(),
            plan: self.plan.clone(),
            caches: self.caches.clone(),
            length: self.length.clone(),
        })
    }

    /// Goes on behind a snapshot without its newest `back` tokens; it must fit and be able to go back so
    /// far.
    ///
    /// # Errors
    /// [`EngineError::NotRevocable`], [`EngineError::Op`] where MLX throws.
    pub(crate) fn adopt(&mut self, snapshot: &Snapshot, back: usize) -> Result<(), EngineError> {
        self.caches = snapshot.caches.clone();
        self.length = snapshot.length.clone();
        self.checkpoint = None;
        if back > 0 {
            self.rollback(back)?;
        }
        Ok(())
    }
}
