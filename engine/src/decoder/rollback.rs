//! Taking tokens back: what speculative decoding does with those it guessed wrong.

use mlx_parity_tensor::HostTensor;
use mlx_rs::Array;

use super::Decoder;
use crate::array::to_host;
use crate::cache::KvCache;
use crate::error::EngineError;
use crate::fault;

/// What it takes to go back over caches that cannot go back by themselves.
#[derive(Debug, Clone)]
pub(super) struct Checkpoint {
    /// One a cache; none where it goes back by itself.
    kept: Vec<Option<KvCache>>,
    /// The ids since, row by row.
    ids: Vec<Vec<u32>>,
    /// Made by [`Decoder::checkpoint`], not before a call.
    asked: bool,
}

impl Checkpoint {
    /// Before a call: what a call leaves can be taken back of keys and values, unless it `packs` them,
    /// but not of recurrent states.
    fn before_call(caches: &[KvCache], packs: bool) -> Option<Self> {
        let keep = |cache: &KvCache| {
            (packs || matches!(cache, KvCache::Recurrent(_))).then(|| cache.clone())
        };
        let kept: Vec<Option<KvCache>> = caches.iter().map(keep).collect();
        let needed = kept.iter().any(Option::is_some);
        needed.then_some(Self { kept, ids: Vec::new(), asked: false })
    }

    /// Before several calls, of which one may pack.
    fn of(caches: &[KvCache], packs: bool) -> Self {
        let grows = |cache: &KvCache| matches!(cache, KvCache::Plain(_) | KvCache::Quantized(_));
        let keep = |cache: &KvCache| (packs || !grows(cache)).then(|| cache.clone());
        Self { kept: caches.iter().map(keep).collect(), ids: Vec::new(), asked: true }
    }

    /// Tokens since.
    fn len(&self) -> usize {
        self.ids.first().map_or(0, Vec::len)
    }

    /// Takes note of a call.
    fn extend(&mut self, rows: &[&[u32]]) {
        self.ids.resize(rows.len(), Vec::new());
        for (ids, row) in self.ids.iter_mut().zip(rows) {
            ids.extend_from_slice(row);
        }
    }

    /// Takes note of the newest `count` ids being gone.
    fn truncate(&mut self, count: usize) {
        for ids in &mut self.ids {
            ids.truncate(ids.len() - count);
        }
    }
}

impl Decoder<'_> {
    /// Runs several tokens in one call, as the verification of speculative decoding does, and returns
    /// the logits of each, `[ids, vocab]`. MLX picks kernels by the number of rows: rounding may differ
    /// from that of the same tokens in other calls.
    ///
    /// # Errors
    /// As [`Decoder::step`], and [`EngineError::EmptyPrompt`].
    pub fn verify(&mut self, ids: &[u32]) -> Result<HostTensor, EngineError> {
        let logits = to_host(&self.verify_logits(ids)?)?;
        let shape = [ids.len(), self.model.vocab_size()];
        Ok(HostTensor::new(logits.dtype(), shape, logits.into_bytes())?)
    }

    /// From here on, until the next checkpoint, [`Decoder::rollback`] can take back tokens of several
    /// calls, where it could else take back those of the last one only. Caches that need it are kept
    /// as they are: the next write copies a window.
    pub fn checkpoint(&mut self) {
        let packs = self.packs_at().is_some_and(|at| self.offset() < at);
        self.checkpoint = Some(Checkpoint::of(&self.caches, packs));
    }

    /// Takes the newest `count` tokens of the last call back, or of all calls since the last
    /// [`Decoder::checkpoint`]; what follows is as if they had not been run. All layers go back or
    /// none does. Past the wrap of a window too: its buffer loses the rows. Where a layer cannot go
    /// back by itself, which is so of recurrent layers and of a wrapped window after several calls,
    /// the caches of the checkpoint are put back and the tokens since that stay are run again.
    ///
    /// # Errors
    /// [`EngineError::NotRevocable`] for more tokens than that, and nothing is taken back;
    /// [`EngineError::Op`] where MLX throws, and [`EngineError::DecoderFailed`] on every call after
    /// that.
    pub fn rollback(&mut self, count: usize) -> Result<(), EngineError> {
        self.sound()?;
        let alone = self.revocable(count);
        let since = self.checkpoint.as_ref().map_or(0, Checkpoint::len);
        let revocable = alone.max(since);
        if count > revocable {
            return Err(EngineError::NotRevocable { found: count, revocable });
        }
        let count = fault::taken_back(self.model.fault(), count);
        if count == 0 {
            return Ok(());
        }
        self.guarded(|decoder| {
            if count <= alone { decoder.shorten(count, since) } else { decoder.replay(count) }
        })
    }

    /// Tokens that all caches can take back by themselves, of `count`: none across their packing.
    fn revocable(&self, count: usize) -> usize {
        let left = self.offset().saturating_sub(count);
        if self.packs_at().is_some_and(|at| (left..self.offset()).contains(&(at - 1))) {
            return 0;
        }
        self.caches.iter().map(KvCache::revocable).min().unwrap_or(0) as usize
    }

    /// Tokens behind which a call packs the caches; none where none does.
    fn packs_at(&self) -> Option<usize> {
        self.plan.packs_at()
    }

    /// Takes tokens back cache by cache; `since` is the number of tokens since the checkpoint.
    fn shorten(&mut self, count: usize, since: usize) -> Result<(), EngineError> {
        for cache in &mut self.caches {
            cache.rollback(count as i32)?;
        }
        self.length.trim(count);
        match &mut self.checkpoint {
            Some(checkpoint) if count <= since => checkpoint.truncate(count),
            checkpoint => *checkpoint = None,
        }
        Ok(())
    }

    /// Puts the caches of the checkpoint back and runs the tokens since that stay.
    fn replay(&mut self, count: usize) -> Result<(), EngineError> {
        let Some(checkpoint) = self.checkpoint.take() else { return Ok(()) };
        let (since, asked) = (checkpoint.len(), checkpoint.asked);
        for (cache, kept) in self.caches.iter_mut().zip(checkpoint.kept) {
            match kept {
                Some(kept) => *cache = kept,
                None => cache.rollback(since as i32)?,
            }
        }
        self.length.trim(since);
        if asked {
            self.checkpoint();
        }
        let left = since - count;
        if left == 0 {
            return Ok(());
        }
        let rows: Vec<&[u32]> = checkpoint.ids.iter().map(|ids| &ids[..left]).collect();
        self.expect(left)?;
        self.chunks(&rows, left, &mut |_| Ok(()))
    }

    /// [`Decoder::verify`] that copies nothing out: `[1, ids, vocab]`.
    pub(crate) fn verify_logits(&mut self, ids: &[u32]) -> Result<Array, EngineError> {
        self.check(&[ids])?;
        self.count_step();
        self.guarded(|decoder| {
            decoder.expect(ids.len())?;
            decoder.call(&[ids], &mut |_| Ok(()))
        })
    }

    /// All ids of a prompt but the last, as a prefill runs them.
    pub(crate) fn feed(&mut self, ids: &[u32]) -> Result<(), EngineError> {
        if ids.is_empty() {
            return self.sound();
        }
        self.check(&[ids])?;
        self.guarded(|decoder| {
            // One more is to come: it may take the sequence across a change of its rotations.
            decoder.expect(ids.len() + 1)?;
            decoder.chunks(&[ids], ids.len(), &mut |_| Ok(()))
        })
    }

    /// The most tokens that one call may run and still be those tokens one by one: rotations that go
    /// by a call's or a sequence's length change behind some position, and caches are packed behind
    /// some call.
    pub(crate) fn widest_call(&self) -> usize {
        let seen = self.offset();
        let room = |limit: usize| limit.saturating_sub(seen).max(1);
        let stretch = self.model.network().stretches_from().map(|limit| room(limit as usize));
        // Past these, all is as it was before.
        let turn = self.length.limit().filter(|limit| seen < *limit).map(room);
        let pack = self.packs_at().filter(|at| seen < *at).map(|at| room(at - 1));
        stretch.into_iter().chain(turn).chain(pack).min().unwrap_or(usize::MAX)
    }

    /// Readies the checkpoint for a call over `rows`.
    pub(super) fn note_call(&mut self, rows: &[&[u32]]) {
        if !self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.asked) {
            let end = self.offset() + rows.first().map_or(0, |row| row.len());
            let packs = self.packs_at().is_some_and(|at| (self.offset() + 1..=end).contains(&at));
            self.checkpoint = Checkpoint::before_call(&self.caches, packs);
        }
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.extend(rows);
        }
    }
}
