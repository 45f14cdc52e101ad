//! Several requests decoded side by side, which join and leave between steps: `GenerationBatch` of
//! `mlx_lm/generate.py`, greedy or teacher-forced.

use std::fmt;

use mlx_parity_tensor::HostTensor;
use mlx_rs::Array;

use crate::array::{read, to_host};
use crate::cache::KvCache;
use crate::composition::Lora;
use crate::decoder::Decoder;
use crate::error::EngineError;
use crate::fault;
use crate::model::{Model, Rung};
use crate::ops::{self, Axes};
use crate::taps::TapSink;

/// Names a request of a [`Batch`]; no two have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(u64);

/// Requests of any lengths that share each model call.
///
/// A request that joins is run alone up to its last token; then its caches stand beside those of the
/// others, aligned at their newest rows, with padding on the left of those that are shorter. Rows see
/// nothing of each other and nothing of padding, but MLX picks kernels by the number of rows, so
/// rounding may differ from that of a request alone.
pub struct Batch<'m> {
    model: &'m Model,
    prefill_step_size: usize,
    caches: Vec<KvCache>,
    rows: Vec<Row>,
    joined: u64,
    failed: bool,
}

/// A request.
struct Row {
    id: RowId,
    /// The token of the next step.
    next: u32,
    /// Behind the newest step, `[1, vocab]`.
    logits: Option<Array>,
}

/// A request that has left its batch.
#[derive(Debug)]
pub struct Left<'m> {
    /// Goes on alone behind what the request has run.
    pub decoder: Decoder<'m>,
    /// The token that the batch would have run next.
    pub next: u32,
}

impl<'m> Batch<'m> {
    /// An empty batch; prompts will be split as [`Decoder::prefill`] splits them.
    ///
    /// # Errors
    /// [`EngineError::NotBatchable`] for a model whose rotations go by the length of one sequence, and
    /// for one generated for its config; [`EngineError::NotAutoregressive`];
    /// [`EngineError::ZeroPrefillStep`].
    pub fn new(model: &'m Model, prefill_step_size: usize) -> Result<Self, EngineError> {
        model.autoregressive()?;
        let network = model.network();
        let by_length = network.length_limit().or(network.stretches_from()).is_some();
        let why = match model.rung() {
            _ if by_length => "its rotations go by the length of one sequence",
            Rung::Generated => "a generated network knows one position; load another rung",
            _ => "",
        };
        if !why.is_empty() {
            return Err(EngineError::NotBatchable { model: model.architecture().to_owned(), why });
        }
        if prefill_step_size == 0 {
            return Err(EngineError::ZeroPrefillStep);
        }
        let (caches, rows) = (Vec::new(), Vec::new());
        Ok(Self { model, prefill_step_size, caches, rows, joined: 0, failed: false })
    }

    /// The requests in the order of their rows.
    pub fn rows(&self) -> Vec<RowId> {
        self.rows.iter().map(|row| row.id).collect()
    }

    /// Takes a request in: all ids of its prompt but the last are run, alone.
    ///
    /// # Errors
    /// As [`Decoder::prefill`]; the batch is then as it was.
    pub fn join(&mut self, prompt: &[u32]) -> Result<RowId, EngineError> {
        let mut decoder = Decoder::new(self.model, self.prefill_step_size);
        let last = decoder.check_prompt(&[prompt])?;
        decoder.feed(&prompt[..last])?;
        self.resume(decoder, prompt[last])
    }

    /// Takes several requests in whose prompts, padded on the left to one length, are run together; one
    /// after the other where a layer is recurrent.
    ///
    /// # Errors
    /// As [`Batch::join`].
    pub fn join_padded(&mut self, prompts: &[&[u32]]) -> Result<Vec<RowId>, EngineError> {
        let caches = self.model.network().new_caches();
        if caches.iter().any(|cache| matches!(cache, KvCache::Recurrent(_))) {
            return prompts.iter().map(|prompt| self.join(prompt)).collect();
        }
        self.sound()?;
        let mut checker = Decoder::new(self.model, self.prefill_step_size);
        for prompt in prompts {
            checker.check_prompt(&[prompt])?;
        }
        let mut caches = self.model.network().new_caches();
        let longest = prompts.iter().map(|prompt| prompt.len() - 1).max().unwrap_or(0);
        let padding: Vec<i32> =
            prompts.iter().map(|prompt| (longest + 1 - prompt.len()) as i32).collect();
        for cache in &mut caches {
            *cache = cache.padded(&padding)?;
        }
        let padded: Vec<Vec<u32>> = prompts
            .iter()
            .zip(&padding)
            .map(|(prompt, &padding)| {
                let ids = prompt[..prompt.len() - 1].iter().copied();
                std::iter::repeat_n(0, padding as usize).chain(ids).collect()
            })
            .collect();
        for start in (0..longest).step_by(self.prefill_step_size) {
            let end = longest.min(start + self.prefill_step_size);
            let ids: Vec<&[u32]> = padded.iter().map(|ids| &ids[start..end]).collect();
            call(self.model, &ids, &mut caches)?;
        }
        let next = prompts.iter().map(|prompt| prompt[prompt.len() - 1]);
        self.admit(caches, next.collect())
    }

    /// Takes a request in that a decoder has run up to before the token `next`.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for packed caches, for a window that keeps rows for ever and for a
    /// decoder of several sequences; [`EngineError::NotBatchable`] for one of another model;
    /// [`EngineError::TokenOutOfRange`]; [`EngineError::DecoderFailed`]. The batch is then as it was.
    pub fn resume(&mut self, mut decoder: Decoder<'m>, next: u32) -> Result<RowId, EngineError> {
        self.sound()?;
        decoder.check_prompt(&[&[next]])?;
        if !std::ptr::eq(decoder.model(), self.model) {
            let model = decoder.model().architecture().to_owned();
            let why = "its decoder is of another model than the batch";
            return Err(EngineError::NotBatchable { model, why });
        }
        let alone = decoder.into_caches()?;
        let caches = alone.iter().map(KvCache::beside).collect::<Result<_, _>>()?;
        let rows = self.admit(caches, vec![next])?;
        Ok(rows[0])
    }

    /// Puts caches of sequences beside those that are there.
    fn admit(&mut self, caches: Vec<KvCache>, next: Vec<u32>) -> Result<Vec<RowId>, EngineError> {
        if self.rows.is_empty() {
            self.caches = caches;
        } else {
            // Only handles are copied; what has been put together is adopted whole.
            let mut all = self.caches.clone();
            for (cache, other) in all.iter_mut().zip(caches) {
                cache.extend(other)?;
            }
            self.caches = all;
        }
        fault::joined(self.model.fault(), &mut self.caches);
        let first = self.rows.len();
        for next in next {
            self.rows.push(Row { id: RowId(self.joined), next, logits: None });
            self.joined += 1;
        }
        Ok(self.rows[first..].iter().map(|row| row.id).collect())
    }

    /// Runs one token of each request and returns the likeliest ones behind them, which the next step
    /// runs.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, and [`EngineError::DecoderFailed`] on every call after that.
    pub fn step(&mut self) -> Result<Vec<(RowId, u32)>, EngineError> {
        self.sound()?;
        if self.rows.is_empty() {
            return Ok(Vec::new());
        }
        self.failed = true;
        let ids: Vec<[u32; 1]> = self.rows.iter().map(|row| [row.next]).collect();
        let ids: Vec<&[u32]> = ids.iter().map(<[u32; 1]>::as_slice).collect();
        let logits = call(self.model, &ids, &mut self.caches)?;
        let logits = ops::reshape(&logits, &[ids.len() as i32, -1])?;
        let logprobs = ops::subtract(&logits, &ops::logsumexp(&logits, Axes::Of(&[-1]), true)?)?;
        let chosen = read::<u32>("choices", &ops::argmax_last(&logprobs)?)?;
        for (at, (row, chosen)) in self.rows.iter_mut().zip(chosen).enumerate() {
            let at = at as i32;
            row.logits = Some(ops::rows_of_last_but_one(&logits, at, at + 1)?);
            row.next = chosen;
        }
        self.failed = false;
        Ok(self.rows.iter().map(|row| (row.id, row.next)).collect())
    }

    /// Has the next step run another token of a request than the likeliest.
    ///
    /// # Errors
    /// [`EngineError::NoSuchRow`], [`EngineError::TokenOutOfRange`].
    pub fn force(&mut self, row: RowId, id: u32) -> Result<(), EngineError> {
        let vocab_size = self.model.vocab_size();
        if id as usize >= vocab_size {
            return Err(EngineError::TokenOutOfRange { id, position: 0, vocab_size });
        }
        let at = self.place(row)?;
        self.rows[at].next = id;
        Ok(())
    }

    /// The logits behind the newest step of a request, `[1, vocab]` in the model's dtype; none before its
    /// first.
    ///
    /// # Errors
    /// [`EngineError::NoSuchRow`], and [`EngineError::Op`] where MLX throws.
    pub fn logits(&self, row: RowId) -> Result<Option<HostTensor>, EngineError> {
        self.rows[self.place(row)?].logits.as_ref().map(to_host).transpose()
    }

    /// Lets a request go, with caches of its own.
    ///
    /// # Errors
    /// [`EngineError::NoSuchRow`], [`EngineError::DecoderFailed`]; [`EngineError::Op`] where MLX throws.
    pub fn leave(&mut self, row: RowId) -> Result<Left<'m>, EngineError> {
        self.sound()?;
        let at = self.place(row)?;
        let own = self.caches.iter().map(|cache| cache.extract(at)).collect::<Result<_, _>>()?;
        let keep: Vec<usize> = (0..self.rows.len()).filter(|&row| row != at).collect();
        let mut left = self.caches.clone();
        if keep.is_empty() {
            left.clear();
        }
        for cache in &mut left {
            cache.filter(&keep)?;
        }
        self.caches = left;
        let next = self.rows.remove(at).next;
        Ok(Left { decoder: Decoder::behind(self.model, self.prefill_step_size, own), next })
    }

    fn place(&self, row: RowId) -> Result<usize, EngineError> {
        let place = self.rows.iter().position(|known| known.id == row);
        place.ok_or(EngineError::NoSuchRow { row: row.0 })
    }

    fn sound(&self) -> Result<(), EngineError> {
        if self.failed { Err(EngineError::DecoderFailed) } else { Ok(()) }
    }
}

/// The logits `[rows, n, vocab]` of ids of one length, evaluated with the caches they go into.
fn call(model: &Model, rows: &[&[u32]], caches: &mut [KvCache]) -> Result<Array, EngineError> {
    let ids: Vec<i32> = rows.iter().copied().flatten().map(|&id| id as i32).collect();
    let ids = Array::from_slice(&ids, &[rows.len() as i32, rows[0].len() as i32]);
    model.set_lora(Lora::Cast);
    let logits = model.network().forward(&ids, caches, &mut TapSink::default())?;
    ops::eval(caches.iter().flat_map(KvCache::state).chain([&logits]))?;
    Ok(logits)
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("model", self.model)
            .field("rows", &self.rows())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
