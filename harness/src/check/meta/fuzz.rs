//! Random operations on one decoder, against a fresh decoder that runs every token of a row at once.

use std::time::Instant;

use mlx_parity_engine::{Decoder, EngineError};
use mlx_parity_tensor::HostTensor;
use tempfile::TempDir;

use super::{Bench, MetaError, Verdict, paths::nearness, player::Player};
use crate::{
    compare::{BitReport, bit_exact},
    meta::{Forgets, Fuzz, Operation, Sequence},
};

/// A decoder, and what is known of it without looking at it.
struct Run<'a> {
    player: &'a Player<'a>,
    fuzz: &'a Fuzz,
    sequence: Sequence,
    decoder: Decoder<'a>,
    kept: Kept,
    scratch: TempDir,
    /// What the saved file has, once there is one.
    saved: Option<Kept>,
}

/// What the decoder must know.
#[derive(Clone)]
struct Kept {
    /// The tokens of each row.
    rows: Vec<Vec<u32>>,
    /// The operations that brought them or turned a window, each with the number of tokens before it.
    calls: Vec<(usize, usize)>,
}

/// The first difference, and where.
type Difference = Option<(String, BitReport)>;

/// Runs the sequence of a seed.
pub(super) fn check(bench: &Bench, fuzz: &Fuzz, seed: u64) -> Result<Verdict, MetaError> {
    let started = Instant::now();
    let player = Player::new(bench);
    let sequence = fuzz.sequence(seed);
    let mut run = Run {
        player: &player,
        fuzz,
        decoder: player.start(sequence.step)?,
        kept: Kept { rows: vec![Vec::new(); sequence.rows], calls: Vec::new() },
        scratch: tempfile::tempdir()?,
        saved: None,
        sequence,
    };
    let mut difference = None;
    for at in 0..run.sequence.operations.len() {
        let done = || {
            let operations = run.sequence.operations[..=at].iter();
            operations.map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let history = done();
        match run.operate(at) {
            Ok(None) => {}
            Ok(Some((what, report))) => {
                let (rows, step) = (run.sequence.rows, run.sequence.step);
                let note = format!("seed {seed}: {what} of {rows}, in calls of {step}: {history}");
                difference = Some((note, report));
                break;
            }
            Err(source) => {
                return Err(MetaError::Sequence { seed, history, source: Box::new(source) });
            }
        }
    }
    let (notes, report) = difference.map(|(note, report)| (vec![note], report)).unzip();
    Ok(Verdict {
        held: report.is_none(),
        report,
        tolerance: None,
        notes: notes.unwrap_or_default(),
        engine_ms: started.elapsed().as_secs_f64() * 1e3,
    })
}

impl Run<'_> {
    fn length(&self) -> usize {
        self.kept.rows[0].len()
    }

    fn file(&self) -> std::path::PathBuf {
        self.scratch.path().join("caches.safetensors")
    }

    fn operate(&mut self, at: usize) -> Result<Difference, MetaError> {
        let operation = self.sequence.operations[at];
        match operation {
            Operation::Prefill(_) | Operation::Decode => return self.advance(at, operation),
            Operation::Trim(count) => self.trim(count)?,
            Operation::Rollback(count) => self.rollback(at, count)?,
            Operation::Save => {
                self.decoder.save_caches(&self.file())?;
                self.saved = Some(self.kept.clone());
            }
            Operation::Load => self.load()?,
            Operation::Refused => self.refused()?,
            Operation::Poison => self.decoder.poison_unused()?,
        }
        Ok(None)
    }

    /// New tokens, and what the model says to them.
    fn advance(&mut self, at: usize, operation: Operation) -> Result<Difference, MetaError> {
        let (count, start) = (Sequence::tokens(operation, self.length()), self.length());
        if count == 0 {
            return Ok(None);
        }
        let vocabulary = self.player.model.vocab_size();
        let new: Vec<Vec<u32>> = (0..self.kept.rows.len())
            .map(|row| (0..count).map(|i| self.sequence.id(at, row, i, vocabulary)).collect())
            .collect();
        let found = if operation == Operation::Decode {
            let ids: Vec<u32> = new.iter().map(|row| row[0]).collect();
            let logits = self.decoder.step_batch(&ids)?;
            (0..ids.len()).map(|row| logits.rows(row..row + 1)).collect()
        } else {
            let rows: Vec<&[u32]> = new.iter().map(Vec::as_slice).collect();
            self.decoder.prefill_batch(&rows)?
        };
        for (row, new) in self.kept.rows.iter_mut().zip(new) {
            row.extend(new);
        }
        self.kept.calls.push((start, at));
        self.compare(start, &found)
    }

    /// Each row from scratch: all its tokens at once, and, where a window stores rows in the order of the
    /// calls, in the calls that brought them.
    fn compare(&self, start: usize, found: &[HostTensor]) -> Result<Difference, MetaError> {
        for (row, (ids, found)) in self.kept.rows.iter().zip(found).enumerate() {
            let wanted = self.player.start(ids.len())?.prefill(ids)?;
            let wanted = wanted.rows(start..ids.len());
            let turns = matches!(self.fuzz.forgets, Forgets::Window(_));
            // A rounding may move a packed value by a whole step.
            let near = turns && !self.player.packs();
            if near && !nearness(found, &wanted)?.held {
                let report = bit_exact(&found.view(), &wanted.view());
                return Ok(Some((format!("row {row}, against all tokens at once,"), report)));
            }
            let wanted = if turns { self.again(ids)? } else { wanted };
            let report = bit_exact(&found.view(), &wanted.view());
            if !report.is_exact() {
                return Ok(Some((format!("row {row}"), report)));
            }
        }
        Ok(None)
    }

    /// What the last call says to a row that is run in the same calls.
    fn again(&self, ids: &[u32]) -> Result<HostTensor, MetaError> {
        let mut decoder = self.player.start(self.sequence.step)?;
        let starts = self.kept.calls.iter().map(|(start, _)| *start);
        let ends = starts.clone().skip(1).chain([ids.len()]);
        let mut last = None;
        for ((start, at), end) in self.kept.calls.iter().zip(ends) {
            let ids = &ids[*start..end];
            match self.sequence.operations[*at] {
                Operation::Decode => last = Some(decoder.step(ids[0])?),
                Operation::Rollback(count) => self.take_back(&mut decoder, *at, count)?,
                _ => last = Some(decoder.prefill(ids)?),
            }
        }
        Ok(last.ok_or(EngineError::EmptyPrompt)?)
    }

    fn trim(&mut self, count: usize) -> Result<(), MetaError> {
        let seen = self.length();
        let wanted = count.min(seen);
        match self.decoder.trim(count) {
            Ok(done) if self.fuzz.forgets.trims(seen) && done == wanted => {
                self.kept.rows.iter_mut().for_each(|row| row.truncate(seen - wanted));
                self.kept.calls.retain(|(start, _)| *start < seen - wanted);
                Ok(())
            }
            Err(EngineError::NotTrimmable { .. }) if !self.fuzz.forgets.trims(seen) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(done) => Err(MetaError::Trim {
                asked: count,
                seen,
                did: format!("forgot {done}"),
                wanted: if self.fuzz.forgets.trims(seen) { "all of them" } else { "a refusal" },
            }),
        }
    }

    /// Tokens in one call, none of which stay.
    fn rollback(&mut self, at: usize, count: usize) -> Result<(), MetaError> {
        if self.kept.rows.len() > 1 {
            return Ok(());
        }
        let mut decoder = std::mem::replace(&mut self.decoder, self.player.start(1)?);
        let taken = self.take_back(&mut decoder, at, count);
        self.decoder = decoder;
        self.kept.calls.push((self.length(), at));
        taken
    }

    fn take_back(&self, decoder: &mut Decoder, at: usize, count: usize) -> Result<(), MetaError> {
        let vocabulary = self.player.model.vocab_size();
        let ids: Vec<u32> = (0..count).map(|i| self.sequence.id(at, 0, i, vocabulary)).collect();
        decoder.verify(&ids)?;
        Ok(decoder.rollback(count)?)
    }

    fn load(&mut self) -> Result<(), MetaError> {
        let Some(saved) = &self.saved else { return Ok(()) };
        self.kept.clone_from(saved);
        let mut fresh = self.player.start(self.sequence.step)?;
        fresh.load_caches(&self.file())?;
        self.decoder = fresh;
        Ok(())
    }

    fn refused(&mut self) -> Result<(), MetaError> {
        let out = vec![self.player.model.vocab_size() as u32; self.kept.rows.len()];
        match self.decoder.step_batch(&out) {
            Err(EngineError::TokenOutOfRange { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(MetaError::NotRefused { what: "a step of an id out of the vocabulary" }),
        }
    }
}
