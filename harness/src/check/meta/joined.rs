//! Requests that join a batch and leave it, each against the same request alone.

use mlx_parity_engine::{Batch, Decoder, RowId};
use mlx_parity_tensor::HostTensor;

use super::{MetaError, paths::Pair, player::Player};

/// A request, the tokens it will run and what the model said to them.
pub(super) struct Request {
    ids: Vec<u32>,
    /// Tokens of its prompt.
    prompt: usize,
    /// Tokens that were run, its prompt among them.
    seen: usize,
    said: Vec<HostTensor>,
}

impl Request {
    pub(super) fn new(ids: Vec<u32>, prompt: usize) -> Self {
        Self { ids, prompt, seen: prompt - 1, said: Vec::new() }
    }

    pub(super) fn prompt(&self) -> &[u32] {
        &self.ids[..self.prompt]
    }

    /// Tokens that it has left to run.
    pub(super) fn left(&self) -> usize {
        self.ids.len() - self.seen
    }

    /// The token it runs next.
    pub(super) fn next(&self) -> u32 {
        self.ids[self.seen]
    }

    /// Takes what was said to its next token.
    fn hear(&mut self, logits: HostTensor) {
        self.said.push(logits);
        self.seen += 1;
    }

    /// One more token in a decoder of its own.
    pub(super) fn alone(&mut self, decoder: &mut Decoder) -> Result<(), MetaError> {
        let logits = decoder.step(self.next())?;
        self.hear(logits);
        Ok(())
    }

    /// What was said to it beside what is said to it alone; none before its first step.
    pub(super) fn pair(&self, player: &Player, what: String) -> Result<Option<Pair>, MetaError> {
        let Some(first) = self.said.first() else { return Ok(None) };
        let mut decoder = player.start(self.prompt)?;
        let prefill = decoder.prefill(self.prompt())?;
        let mut base = prefill.rows(self.prompt - 1..self.prompt).into_bytes();
        for &id in &self.ids[self.prompt..self.seen] {
            base.extend(decoder.step(id)?.into_bytes());
        }
        let got = self.said.iter().flat_map(|logits| logits.bytes().iter().copied()).collect();
        let shape = [self.said.len(), player.model.vocab_size()];
        let [base, got] =
            [base, got].map(|bytes: Vec<u8>| HostTensor::new(first.dtype(), shape, bytes));
        let ids = self.ids[..self.seen].to_vec();
        Ok(Some(Pair { what, ids, start: self.prompt - 1, base: base?, got: got? }))
    }
}

/// One step of a batch, each request with its own next token.
pub(super) fn step(
    batch: &mut Batch,
    requests: &mut [(RowId, usize)],
    all: &mut [Request],
) -> Result<(), MetaError> {
    for (row, at) in requests.iter() {
        batch.force(*row, all[*at].next())?;
    }
    batch.step()?;
    for (row, at) in requests.iter() {
        let logits = batch.logits(*row)?.ok_or(MetaError::NotRefused { what: "no answer" })?;
        all[*at].hear(logits);
    }
    Ok(())
}

/// Four requests of other lengths: one joins behind another, two together, and the first leaves and goes
/// on alone.
pub(super) fn check(player: &Player, ids: &[u32]) -> Result<Vec<Pair>, MetaError> {
    let prompts = [9, 20, 5, 12].map(|prompt: usize| prompt.min(ids.len()));
    let mut all: Vec<Request> = (0..4)
        .map(|row| {
            let mut ids = ids.to_vec();
            ids.rotate_left(7 * row % ids.len());
            Request::new(ids, prompts[row])
        })
        .collect();
    let mut batch = Batch::new(player.model, 6)?;
    let mut rows = vec![(batch.join(all[0].prompt())?, 0)];
    steps(&mut batch, &mut rows, &mut all, 6)?;
    rows.push((batch.join(all[1].prompt())?, 1));
    steps(&mut batch, &mut rows, &mut all, 8)?;
    let joined = batch.join_padded(&[all[2].prompt(), all[3].prompt()])?;
    rows.extend(joined.into_iter().zip([2, 3]));
    steps(&mut batch, &mut rows, &mut all, 7)?;
    let (first, _) = rows.remove(0);
    let mut gone = batch.leave(first)?;
    steps(&mut batch, &mut rows, &mut all, 5)?;
    for _ in 0..5 {
        all[0].alone(&mut gone.decoder)?;
    }
    let pairs = all.iter().enumerate().map(|(row, one)| one.pair(player, format!("row {row}")));
    Ok(pairs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn steps(
    batch: &mut Batch,
    rows: &mut [(RowId, usize)],
    all: &mut [Request],
    count: usize,
) -> Result<(), MetaError> {
    for _ in 0..count {
        if rows.iter().any(|(_, at)| all[*at].left() == 0) {
            break;
        }
        step(batch, rows, all)?;
    }
    Ok(())
}
