//! Random joins, steps and leaves of a batch, each request against the same one alone.

use std::time::Instant;

use mlx_parity_engine::{Batch, Decoder, RowId};

use super::{
    Bench, MetaError, Verdict,
    joined::{Request, step},
    paths::{compared, near},
    player::Player,
};
use crate::meta::{BatchOperation, Fuzz};

/// A batch, requests that are in it, and those that have left.
struct Run<'a> {
    batch: Batch<'a>,
    all: Vec<Request>,
    inside: Vec<(RowId, usize)>,
    alone: Vec<(Decoder<'a>, usize)>,
}

/// Runs the sequence of a seed.
pub(super) fn check(bench: &Bench, fuzz: &Fuzz, seed: u64) -> Result<Verdict, MetaError> {
    let started = Instant::now();
    let player = Player::new(bench);
    let mut run = Run {
        batch: Batch::new(player.model, 6)?,
        all: Vec::new(),
        inside: Vec::new(),
        alone: Vec::new(),
    };
    let operations = fuzz.batch_operations(seed);
    let history = |upto: usize| {
        let done = operations[..=upto].iter().map(ToString::to_string);
        done.collect::<Vec<_>>().join(", ")
    };
    for (at, operation) in operations.iter().enumerate() {
        run.operate(&player, fuzz, seed, *operation).map_err(|source| MetaError::Sequence {
            seed,
            history: history(at),
            source: Box::new(source),
        })?;
    }
    let pairs = run.all.iter().enumerate().map(|(row, request)| {
        let what = format!("seed {seed}: request {row} of: {};", history(operations.len() - 1));
        request.pair(&player, what)
    });
    let pairs: Vec<_> = pairs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    Ok(Verdict { engine_ms: started.elapsed().as_secs_f64() * 1e3, ..near(&compared(pairs)?)? })
}

impl<'a> Run<'a> {
    fn operate(
        &mut self,
        player: &Player<'a>,
        fuzz: &Fuzz,
        seed: u64,
        operation: BatchOperation,
    ) -> Result<(), MetaError> {
        match operation {
            BatchOperation::Join(prompt) => {
                let request = self.request(player, fuzz, seed, prompt);
                let row = self.batch.join(request.prompt())?;
                self.take(row, request);
            }
            BatchOperation::JoinTwo(one, other) => {
                let first = self.request(player, fuzz, seed, one);
                // Requests are told apart by their number.
                self.all.push(first);
                let second = self.request(player, fuzz, seed, other);
                let first = self.all.pop().ok_or(MetaError::NoModel)?;
                let rows = self.batch.join_padded(&[first.prompt(), second.prompt()])?;
                self.take(rows[0], first);
                self.take(rows[1], second);
            }
            BatchOperation::Step => self.step()?,
            BatchOperation::Leave(which) if !self.inside.is_empty() => {
                let (row, at) = self.inside.remove(which % self.inside.len());
                self.alone.push((self.batch.leave(row)?.decoder, at));
            }
            BatchOperation::Return(which) if !self.alone.is_empty() => {
                let (decoder, at) = self.alone.remove(which % self.alone.len());
                if self.all[at].left() > 0 {
                    let next = self.all[at].next();
                    self.inside.push((self.batch.resume(decoder, next)?, at));
                }
            }
            BatchOperation::Leave(_) | BatchOperation::Return(_) => {}
        }
        Ok(())
    }

    fn request(&self, player: &Player, fuzz: &Fuzz, seed: u64, prompt: usize) -> Request {
        Request::new(fuzz.tokens(seed, self.all.len(), player.model.vocab_size()), prompt)
    }

    fn take(&mut self, row: RowId, request: Request) {
        self.inside.push((row, self.all.len()));
        self.all.push(request);
    }

    /// A step of the batch, without those that have no token left, and one of each that is alone.
    fn step(&mut self) -> Result<(), MetaError> {
        let (done, inside) = std::mem::take(&mut self.inside)
            .into_iter()
            .partition(|(_, at)| self.all[*at].left() == 0);
        self.inside = inside;
        let done: Vec<(RowId, usize)> = done;
        for (row, _) in done {
            self.batch.leave(row)?;
        }
        step(&mut self.batch, &mut self.inside, &mut self.all)?;
        for (decoder, at) in &mut self.alone {
            if self.all[*at].left() > 0 {
                self.all[*at].alone(decoder)?;
            }
        }
        Ok(())
    }
}
