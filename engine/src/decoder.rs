//! Teacher-forced decoding with mlx-lm's split of the prompt.

mod rollback;
mod snapshot;
mod staged;

use std::path::Path;
use std::rc::Rc;

use mlx_parity_tensor::HostTensor;
use mlx_rs::Array;

use self::rollback::Checkpoint;
pub(crate) use self::snapshot::Snapshot;
use crate::array::to_host;
use crate::cache::{self, KvCache, RotatingCache};
use crate::composition::{Composition, Plan};
use crate::error::{EngineError, op};
use crate::fault;
use crate::kernels::{self, Active};
use crate::length::Length;
use crate::model::Model;
use crate::ops;
use crate::taps::{TapSink, Taps};

/// The chunk length that `generate_step` of `mlx_lm/generate.py` defaults to.
pub const DEFAULT_PREFILL_STEP_SIZE: usize = 2048;

/// Positions at the front of a sequence that bounded caches keep.
const KEPT: i32 = 4;

/// A model and the caches of one sequence, or of several of equal length side by side.
pub struct Decoder<'m> {
    model: &'m Model,
    plan: Plan,
    caches: Vec<KvCache>,
    prefill_step_size: usize,
    steps: usize,
    sink: TapSink,
    tapped: Vec<(String, HostTensor)>,
    failed: bool,
    length: Length,
    kernels: Rc<Active>,
    /// The next call is the first after a trim.
    just_trimmed: bool,
    /// The point at which the next compiled step fails.
    failing: Option<usize>,
    /// Where a rollback can go back to, other than cache by cache.
    checkpoint: Option<Checkpoint>,
}

impl<'m> Decoder<'m> {
    /// A decoder at the start of a sequence.
    pub fn new(model: &'m Model, prefill_step_size: usize) -> Self {
        Self::start(model, prefill_step_size, Plan::l1(), model.network().new_caches())
    }

    /// A decoder at the start of a sequence that computes with a composition.
    ///
    /// # Errors
    /// [`EngineError::Composition`] where the model cannot carry it.
    pub fn with(
        model: &'m Model,
        prefill_step_size: usize,
        composition: &Composition,
    ) -> Result<Self, EngineError> {
        let plan = Plan::new(model, composition)?;
        let caches = plan.new_caches(model)?;
        Ok(Self::start(model, prefill_step_size, plan, caches))
    }

    /// A decoder whose caches hold `max_kv_size` positions, the first 4 of the sequence among them
    /// (`make_prompt_cache` of `mlx_lm/models/cache.py`).
    ///
    /// # Errors
    /// [`EngineError::MaskRule`] for a size that the kept positions fill, [`EngineError::CacheForm`] for
    /// a model that has a window or a recurrent state of its own.
    pub fn bounded(
        model: &'m Model,
        prefill_step_size: usize,
        max_kv_size: usize,
    ) -> Result<Self, EngineError> {
        let (least, most) = (KEPT + 1, i32::MAX);
        let size = i32::try_from(max_kv_size).unwrap_or(most);
        if size < least {
            return Err(EngineError::MaskRule { what: "max_kv_size", found: size, least, most });
        }
        let mut caches = model.network().new_caches();
        for cache in &mut caches {
            let KvCache::Plain(_) = cache else {
                let wanted = "every position, to be bounded by max_kv_size".to_owned();
                return Err(EngineError::CacheForm { found: cache.to_string(), wanted });
            };
            *cache = KvCache::Rotating(RotatingCache::new(size, KEPT));
        }
        Ok(Self::start(model, prefill_step_size, Plan::l1(), caches))
    }

    fn start(model: &'m Model, prefill_step_size: usize, plan: Plan, caches: Vec<KvCache>) -> Self {
        Self {
            model,
            kernels: Rc::new(Active::new(plan.composition().kernels.clone())),
            plan,
            caches: fault::planted(model.fault(), caches),
            prefill_step_size,
            steps: 0,
            sink: TapSink::default(),
            tapped: Vec::new(),
            failed: false,
            length: Length::new(model.network().length_limit()),
            just_trimmed: false,
            failing: None,
            checkpoint: None,
        }
    }

    /// The model it decodes with.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Tokens seen so far.
    pub fn offset(&self) -> usize {
        self.caches.first().map_or(0, |cache| cache.offset() as usize)
    }

    /// What it computes with.
    pub fn composition(&self) -> &Composition {
        self.plan.composition()
    }

    /// What each cache is now, in the words of a golden's manifest: `rotating(16), quantized(4 bits,
    /// group 32)`.
    pub fn cache_names(&self) -> Vec<String> {
        self.caches.iter().map(ToString::to_string).collect()
    }

    /// Bytes of all caches.
    pub fn cache_bytes(&self) -> usize {
        self.caches.iter().map(KvCache::bytes).sum()
    }

    /// Tokens of a prompt that one call takes.
    pub fn prefill_step_size(&self) -> usize {
        self.prefill_step_size
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
        self.prefill_batch(&[ids])?.pop().ok_or(EngineError::EmptyPrompt)
    }

    /// [`Decoder::prefill`] of several prompts of equal length in one batch: the logits of each row,
    /// `[ids, vocab]`. Rows see nothing of each other; rounding may differ from that of a row alone.
    ///
    /// # Errors
    /// As [`Decoder::prefill`]; [`EngineError::UnequalRows`], and [`EngineError::BatchSize`] where the
    /// caches hold another number of sequences.
    pub fn prefill_batch(&mut self, rows: &[&[u32]]) -> Result<Vec<HostTensor>, EngineError> {
        let mut bytes = vec![Vec::new(); rows.len()];
        let mut dtype = self.model.dtype();
        self.run_prompt(rows, |logits| {
            let logits = to_host(logits)?;
            dtype = logits.dtype();
            let row = logits.bytes().len() / rows.len();
            for (bytes, row) in bytes.iter_mut().zip(logits.bytes().chunks_exact(row)) {
                bytes.extend_from_slice(row);
            }
            Ok(())
        })?;
        let shape = [rows.first().map_or(0, |row| row.len()), self.model.vocab_size()];
        let tensors = bytes.into_iter().map(|bytes| HostTensor::new(dtype, shape, bytes));
        Ok(tensors.collect::<Result<_, _>>()?)
    }

    /// Runs one more token and returns its logits, `[1, vocab]`, in the model's dtype.
    ///
    /// # Errors
    /// [`EngineError::TokenOutOfRange`] before anything is computed; else as [`Decoder::prefill`].
    pub fn step(&mut self, id: u32) -> Result<HostTensor, EngineError> {
        self.step_batch(&[id])
    }

    /// [`Decoder::step`] of a batch, one token a row: logits `[rows, vocab]`.
    ///
    /// # Errors
    /// As [`Decoder::step`], and [`EngineError::BatchSize`].
    pub fn step_batch(&mut self, ids: &[u32]) -> Result<HostTensor, EngineError> {
        let logits = to_host(&self.step_logits(ids)?)?;
        let shape = vec![ids.len(), self.model.vocab_size()];
        Ok(HostTensor::new(logits.dtype(), shape, logits.into_bytes())?)
    }

    /// Forgets the newest `count` positions of every layer, at most all, and returns how many it
    /// forgot (`trim_prompt_cache` of `mlx_lm/models/cache.py`).
    ///
    /// # Errors
    /// [`EngineError::NotTrimmable`] where the window of a layer has wrapped or a layer is recurrent,
    /// and nothing is forgotten; [`EngineError::DecoderFailed`] after a failed call.
    pub fn trim(&mut self, count: usize) -> Result<usize, EngineError> {
        self.sound()?;
        let (fault, stuck) = (self.model.fault(), |cache: &KvCache| !cache.is_trimmable());
        if let Some(layer) = self.caches.iter().position(stuck)
            && !fault::trims_anything(fault)
        {
            let recurrent = matches!(self.caches[layer], KvCache::Recurrent(_));
            return Err(EngineError::NotTrimmable { layer, seen: self.offset(), recurrent });
        }
        let wanted = count.min(self.offset()) as i32;
        fault::trim(fault, &mut self.caches, wanted);
        self.length.trim(wanted as usize);
        self.just_trimmed = true;
        self.checkpoint = None;
        Ok(wanted as usize)
    }

    /// Fills every slot of the caches that no later token may attend to with NaN: for checks that none
    /// does.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, [`EngineError::DecoderFailed`] after a failed call.
    pub fn poison_unused(&mut self) -> Result<(), EngineError> {
        self.sound()?;
        self.caches.iter_mut().try_for_each(KvCache::poison_unused)
    }

    /// Writes the caches to a safetensors file, whole buffers and counters, for
    /// [`Decoder::load_caches`] of a decoder of the same model.
    ///
    /// # Errors
    /// [`EngineError::Safetensors`] where the file cannot be written, [`EngineError::Op`] where MLX
    /// throws, [`EngineError::DecoderFailed`] after a failed call.
    pub fn save_caches(&self, file: &Path) -> Result<(), EngineError> {
        self.sound()?;
        cache::save(file, &self.caches, &self.model.cache_form(&self.plan))
    }

    /// Puts saved caches in the place of this decoder's own.
    ///
    /// # Errors
    /// [`EngineError::SavedCaches`] where they are another model's or composition's, or of another shape, dtype or
    /// window than this model's, or the file contradicts itself; [`EngineError::Safetensors`] where it
    /// cannot be read. The decoder is then as it was.
    pub fn load_caches(&mut self, file: &Path) -> Result<(), EngineError> {
        let empty = self.plan.new_caches(self.model)?;
        let loaded = cache::load(file, &empty, &self.model.cache_form(&self.plan))?;
        self.caches = fault::loaded(self.model.fault(), loaded, &self.caches)?;
        self.length.replace(self.offset());
        self.checkpoint = None;
        self.failed = false;
        Ok(())
    }

    /// [`Decoder::prefill`] that copies nothing out: the logits of the last position, `[1, 1, vocab]`, not
    /// evaluated yet.
    pub(crate) fn prompt_logits(&mut self, ids: &[u32]) -> Result<Array, EngineError> {
        let last = self.check_prompt(&[ids])?;
        self.guarded(|decoder| {
            decoder.expect(ids.len())?;
            decoder.chunks(&[ids], last, &mut |_| Ok(()))?;
            decoder.forward(&[&ids[last..]])
        })
    }

    /// [`Decoder::step_batch`] that copies nothing out: `[rows, 1, vocab]`.
    pub(crate) fn step_logits(&mut self, ids: &[u32]) -> Result<Array, EngineError> {
        let rows: Vec<&[u32]> = ids.chunks(1).collect();
        self.check(&rows)?;
        self.count_step();
        if self.is_staged() {
            return self.staged_step(&rows);
        }
        self.guarded(|decoder| {
            decoder.expect(1)?;
            decoder.call(&rows, &mut |_| Ok(()))
        })
    }

    /// Whether [`Decoder::next_logits`] may be used: rotations that change with the length need to know
    /// every id, and deliberate faults count the steps.
    pub(crate) fn looks_ahead(&self) -> bool {
        !self.length.matters() && self.model.fault().is_none() && !self.just_trimmed
    }

    /// The logits `[1, 1, vocab]` behind one more token, whose id, u32 `[1]`, may still be on its way.
    /// Nothing is evaluated: that of the logits brings the caches along.
    pub(crate) fn next_logits(&mut self, id: &Array) -> Result<Array, EngineError> {
        if self.is_staged() {
            let before = self.offset();
            let logits = self.staged(&ops::reshape(id, &[1, 1])?)?;
            self.checkpoint = None;
            self.warn_past_training(before);
            return Ok(logits);
        }
        self.guarded(|decoder| {
            let before = decoder.offset();
            decoder.checkpoint = None;
            let ids = ops::reshape(id, &[1, 1])?;
            let logits = decoder.compute(&ids)?;
            decoder.warn_past_training(before);
            Ok(logits)
        })
    }

    fn run_prompt(
        &mut self,
        rows: &[&[u32]],
        mut each: impl FnMut(&Array) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let last = self.check_prompt(rows)?;
        self.guarded(|decoder| {
            decoder.expect(rows[0].len())?;
            decoder.chunks(rows, last, &mut each)?;
            decoder.call(&part(rows, last, last + 1), &mut each)?;
            Ok(())
        })
    }

    /// Checks a prompt, and returns how many of its tokens come before the last.
    pub(crate) fn check_prompt(&mut self, rows: &[&[u32]]) -> Result<usize, EngineError> {
        if self.prefill_step_size == 0 {
            return Err(EngineError::ZeroPrefillStep);
        }
        self.check(rows)?;
        Ok(rows[0].len() - 1)
    }

    /// Calls for the first `stop` tokens of the rows, a prefill step at a time.
    fn chunks(
        &mut self,
        rows: &[&[u32]],
        stop: usize,
        each: &mut impl FnMut(&Array) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        for start in (0..stop).step_by(self.prefill_step_size) {
            let end = start.saturating_add(self.prefill_step_size).min(stop);
            self.call(&part(rows, start, end), each)?;
            op("clear_cache", mlx_rs::memory::clear_cache())?;
        }
        Ok(())
    }

    /// Readies the caches for `count` more tokens: where those take the sequence across a length at
    /// which its rotations change, what it holds is run again.
    fn expect(&mut self, count: usize) -> Result<(), EngineError> {
        if !self.length.matters() {
            return Ok(());
        }
        let length = self.offset() + count;
        let again = self.length.plan(length)?;
        if again.is_some() {
            self.caches = self.plan.new_caches(self.model)?;
            self.checkpoint = None;
        }
        for cache in &mut self.caches {
            cache.expect(length as i32)?;
        }
        let Some(again) = again else { return Ok(()) };
        let rows: Vec<&[u32]> = again.iter().map(Vec::as_slice).collect();
        self.chunks(&rows, rows[0].len(), &mut |_| Ok(()))
    }

    /// One model call: builds the graph, evaluates the caches, hands the logits `[rows, n, vocab]` out.
    fn call(
        &mut self,
        rows: &[&[u32]],
        each: &mut impl FnMut(&Array) -> Result<(), EngineError>,
    ) -> Result<Array, EngineError> {
        let stale = self.stale(rows[0].len() as i32);
        let logits = self.forward(rows)?;
        ops::eval(self.caches.iter().flat_map(KvCache::state))?;
        each(&logits)?;
        self.tapped.extend(self.sink.drain()?);
        if let Some(stale) = stale {
            self.caches = stale;
        }
        fault::called(self.model.fault(), &mut self.caches, [rows.len(), rows[0].len()])?;
        Ok(logits)
    }

    /// The caches that a call of `count` tokens leaves behind under a fault.
    fn stale(&mut self, count: i32) -> Option<Vec<KvCache>> {
        let just_trimmed = std::mem::take(&mut self.just_trimmed);
        just_trimmed.then(|| fault::stale(self.model.fault(), &self.caches, count)).flatten()
    }

    /// Counts a decode step, for faults that act in one.
    fn count_step(&mut self) {
        self.steps += 1;
        if let Some(fault) = self.model.fault() {
            fault.strike(self.steps);
        }
    }

    /// Builds the graph of logits `[rows, n, vocab]` and of the caches, and evaluates neither.
    fn forward(&mut self, rows: &[&[u32]]) -> Result<Array, EngineError> {
        let ids = ids_of(rows);
        let before = self.offset();
        self.note_call(rows);
        let logits = self.compute(&ids)?;
        self.warn_past_training(before);
        self.length.extend(rows);
        Ok(logits)
    }

    /// The network's graph for ids `[rows, n]`, and that of the conversion behind it.
    fn compute(&mut self, ids: &Array) -> Result<Array, EngineError> {
        self.model.set_lora(self.plan.lora());
        let forward = || self.model.network().forward(ids, &mut self.caches, &mut self.sink);
        let logits = kernels::scope(&self.kernels, forward)?;
        self.plan.convert(&mut self.caches)?;
        fault::unwatched(self.model.fault(), &self.sink.taps, logits)
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
        self.sound()?;
        self.failed = true;
        let result = work(self)?;
        self.failed = false;
        Ok(result)
    }

    fn sound(&self) -> Result<(), EngineError> {
        if self.failed { Err(EngineError::DecoderFailed) } else { Ok(()) }
    }

    /// Checks a call: the model decodes token by token, and of the rows there are as many as the caches hold, of one length above zero, and
    /// MLX will find all their ids.
    fn check(&mut self, rows: &[&[u32]]) -> Result<(), EngineError> {
        let checked = self.check_rows(rows);
        if checked.is_err() {
            fault::refused(self.model.fault(), &mut self.caches);
        }
        checked
    }

    fn check_rows(&self, rows: &[&[u32]]) -> Result<(), EngineError> {
        self.model.autoregressive()?;
        let wanted = rows.first().map_or(0, |row| row.len());
        if wanted == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        let found = self.offset() + wanted;
        if let Some(limit) = self.model.network().position_limit().filter(|limit| found > *limit) {
            return Err(EngineError::PastContext { found, limit });
        }
        let held = self.caches.first().and_then(KvCache::batch);
        if let Some(wanted) = held.filter(|held| *held != rows.len()) {
            return Err(EngineError::BatchSize { found: rows.len(), wanted });
        }
        for (row, ids) in rows.iter().enumerate() {
            if ids.len() != wanted {
                return Err(EngineError::UnequalRows { row, found: ids.len(), wanted });
            }
            self.check_ids(ids)?;
        }
        Ok(())
    }

    fn check_ids(&self, ids: &[u32]) -> Result<(), EngineError> {
        let vocab_size = self.model.vocab_size();
        match ids.iter().position(|&id| id as usize >= vocab_size) {
            Some(position) => {
                Err(EngineError::TokenOutOfRange { id: ids[position], position, vocab_size })
            }
            None => Ok(()),
        }
    }
}

/// The ids of rows of one length, `[rows, n]`; the reference makes them from Python integers: i32.
fn ids_of(rows: &[&[u32]]) -> Array {
    let ids: Vec<i32> = rows.iter().copied().flatten().map(|&id| id as i32).collect();
    Array::from_slice(&ids, &[rows.len() as i32, (ids.len() / rows.len()) as i32])
}

/// The same tokens of every row.
fn part<'a>(rows: &[&'a [u32]], start: usize, stop: usize) -> Vec<&'a [u32]> {
    rows.iter().map(|row| &row[start..stop]).collect()
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
