//! Other ways to the logits of a prompt.

use std::time::Instant;

use mlx_parity_engine::{Decoder, EngineError, Model};
use mlx_parity_tensor::HostTensor;

use super::{Bench, MetaError, Verdict, joined, player::Player, staged};
use crate::{
    compare::{ToleranceReport, Zeros, bit_exact, check_tolerance, error::LengthMismatch},
    meta::{Budget, NEAR, Path, Relation, Route},
};

/// Two answers to the same ids.
pub(super) struct Pair {
    /// Which of several, for people; empty where there is one.
    pub(super) what: String,
    pub(super) ids: Vec<u32>,
    /// The position of the first row of the answers.
    pub(super) start: usize,
    pub(super) base: HostTensor,
    pub(super) got: HostTensor,
}

/// How the ids behind a cut are run.
#[derive(Clone, Copy)]
enum Rest {
    Whole,
    OneByOne,
}

impl Rest {
    const BOTH: [(Self, &'static str); 2] =
        [(Self::Whole, "the rest in one call"), (Self::OneByOne, "the rest one by one")];

    fn step(self, ids: &[u32]) -> usize {
        match self {
            Self::Whole => ids.len(),
            Self::OneByOne => 1,
        }
    }
}

/// Runs one path and what it is compared with.
pub(super) fn check(bench: &mut Bench, path: &Path) -> Result<Verdict, MetaError> {
    let (found, wanted) = (bench.ids.len(), path.route.tokens());
    if found < wanted {
        return Err(MetaError::ShortPrompt { found, wanted });
    }
    let started = Instant::now();
    let (player, ids) = (Player::new(bench), bench.ids.as_slice());
    let (player, model) = (&player, &bench.model);
    let pairs = match path.route {
        Route::Again => chunked(player, ids, ids.len())?,
        Route::Chunk(size) => chunked(player, ids, size)?,
        Route::Trim { at, tokens } => {
            cut(player, ids, at, |decoder| detour(decoder, model, ids, tokens))?
        }
        Route::RefusedTrim { at } => cut(player, ids, at, refused_trim)?,
        Route::Save { at } => cut(player, ids, at, |decoder| saved(decoder, player))?,
        Route::Rollback { at, tokens } => {
            cut(player, ids, at, |decoder| staged::rolled_back(decoder, model, ids, tokens))?
        }
        Route::Speculate(guesses) => staged::speculated(player, ids, guesses)?,
        Route::JoinAndLeave => joined::check(player, ids)?,
        Route::Compiled { at } => staged::compiled(player, ids, at)?,
        Route::FailedStep { at } => staged::failed(player, ids, at)?,
        Route::RefusedComposition => return refused_composition(player, ids.len()),
        Route::Poison { at } => cut(player, ids, at, |decoder| Ok(decoder.poison_unused()?))?,
        Route::Refusal { at } => cut(player, ids, at, |decoder| refusals(decoder, model))?,
        Route::Batch(rows) => batch(player, ids, rows)?,
    };
    let pairs = compared(pairs)?;
    let engine_ms = started.elapsed().as_secs_f64() * 1e3;
    let verdict = match path.relation {
        Relation::Bits if bench.bits => bits(&pairs),
        Relation::Near => near(&pairs)?,
        _ => close(bench, &pairs)?,
    };
    Ok(Verdict { engine_ms, ..verdict })
}

/// The pairs, of which there must be one.
pub(super) fn compared(pairs: Vec<Pair>) -> Result<Vec<Pair>, MetaError> {
    if pairs.is_empty() { Err(MetaError::NothingCompared) } else { Ok(pairs) }
}

fn chunked(player: &Player, ids: &[u32], size: usize) -> Result<Vec<Pair>, MetaError> {
    let base = player.known("whole".to_owned(), || Ok(player.start(ids.len())?.prefill(ids)?))?;
    let got = player.start(size)?.prefill(ids)?;
    Ok(vec![Pair { what: String::new(), ids: ids.to_vec(), start: 0, base, got }])
}

/// Two decoders over the same ids, of which one does something in between that must not show.
fn cut<'m>(
    player: &Player<'m>,
    ids: &[u32],
    at: usize,
    between: impl Fn(&mut Decoder<'m>) -> Result<(), MetaError>,
) -> Result<Vec<Pair>, MetaError> {
    let (first, rest) = ids.split_at(at);
    let run = |how: Rest, between: &dyn Fn(&mut Decoder<'m>) -> Result<(), MetaError>| {
        // A few steps follow the first part in one call and a last token; else all is run alike.
        let few = player.one_by_one.filter(|_| matches!(how, Rest::OneByOne));
        let mut decoder = player.start(few.map_or(how.step(ids), |_| ids.len()))?;
        decoder.prefill(first)?;
        between(&mut decoder)?;
        match few {
            Some(few) => staged::steps(&mut decoder, &rest[..rest.len().min(few)]),
            None => Ok(decoder.prefill(rest)?),
        }
    };
    let pair = |(how, what): (Rest, &str)| {
        let base = player.known(format!("{at} {what}"), || run(how, &|_| Ok(())))?;
        let got = run(how, &between)?;
        Ok(Pair { what: what.to_owned(), ids: ids.to_vec(), start: at, base, got })
    };
    Rest::BOTH.into_iter().map(pair).collect()
}

/// Other tokens, and their trim.
fn detour(
    decoder: &mut Decoder,
    model: &Model,
    ids: &[u32],
    tokens: usize,
) -> Result<(), MetaError> {
    decoder.prefill(&others(model, ids, tokens))?;
    let seen = decoder.offset();
    match decoder.trim(tokens)? {
        done if done == tokens => Ok(()),
        done => Err(MetaError::Trim {
            asked: tokens,
            seen,
            did: format!("forgot {done}"),
            wanted: "as many as it was asked",
        }),
    }
}

/// Tokens unlike those of the prompt.
pub(super) fn others(model: &Model, ids: &[u32], count: usize) -> Vec<u32> {
    let vocab = model.vocab_size() as u32;
    (0..count).map(|at| (ids[at % ids.len()] + 1 + at as u32) % vocab).collect()
}

fn refused_trim(decoder: &mut Decoder) -> Result<(), MetaError> {
    let seen = decoder.offset();
    match decoder.trim(1) {
        Err(EngineError::NotTrimmable { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(done) => Err(MetaError::Trim {
            asked: 1,
            seen,
            did: format!("forgot {done}"),
            wanted: "a refusal, since a window has wrapped or a layer is recurrent",
        }),
    }
}

/// Calls that are refused before anything is computed.
fn refusals(decoder: &mut Decoder, model: &Model) -> Result<(), MetaError> {
    let (seen, out) = (decoder.offset(), model.vocab_size() as u32);
    let refused = [
        ("a step of an id out of the vocabulary", decoder.step(out).err()),
        ("a prompt with one", decoder.prefill(&[0, 1, out]).err()),
        ("a prompt of no ids", decoder.prefill(&[]).err()),
        ("a step of one row too many", decoder.step_batch(&[0, 1]).err()),
    ];
    for (what, error) in refused {
        match error {
            Some(
                EngineError::TokenOutOfRange { .. }
                | EngineError::EmptyPrompt
                | EngineError::BatchSize { .. },
            ) => {}
            Some(error) => return Err(error.into()),
            None => return Err(MetaError::NotRefused { what }),
        }
    }
    if decoder.offset() != seen {
        return Err(MetaError::NotRefused { what: "a position of a refused call" });
    }
    Ok(())
}

/// Goes on in a fresh decoder with the caches of the given one.
pub(super) fn saved<'m>(decoder: &mut Decoder<'m>, player: &Player<'m>) -> Result<(), MetaError> {
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("caches.safetensors");
    decoder.save_caches(&file)?;
    let mut fresh = player.start(decoder.prefill_step_size())?;
    fresh.load_caches(&file)?;
    *decoder = fresh;
    Ok(())
}

/// The prompt and turns of it, in one batch and alone; half of each in one call, half step by step, or
/// the last few where a few are enough.
fn batch(player: &Player, ids: &[u32], rows: usize) -> Result<Vec<Pair>, MetaError> {
    let turned = |row: usize| {
        let mut turned = ids.to_vec();
        turned.rotate_left(5 * row % ids.len());
        turned
    };
    let rows: Vec<Vec<u32>> = (0..rows).map(turned).collect();
    let together = side_by_side(player, &rows)?;
    let mut pairs = Vec::new();
    for (row, (ids, got)) in rows.into_iter().zip(together).enumerate() {
        let what = format!("row {row}");
        let base = side_by_side(player, std::slice::from_ref(&ids))?.remove(0);
        pairs.push(Pair { what, ids, start: 0, base, got });
    }
    Ok(pairs)
}

fn side_by_side(player: &Player, rows: &[Vec<u32>]) -> Result<Vec<HostTensor>, MetaError> {
    let length = rows[0].len();
    let steps = player.one_by_one.unwrap_or(length).min(length / 2);
    let head = length - steps;
    let mut decoder = player.start(length)?;
    let heads: Vec<&[u32]> = rows.iter().map(|row| &row[..head]).collect();
    let first = decoder.prefill_batch(&heads)?;
    let mut bytes: Vec<Vec<u8>> = first.into_iter().map(HostTensor::into_bytes).collect();
    for at in head..length {
        let ids: Vec<u32> = rows.iter().map(|row| row[at]).collect();
        let logits = decoder.step_batch(&ids)?;
        for (row, bytes) in bytes.iter_mut().enumerate() {
            bytes.extend(logits.rows(row..row + 1).into_bytes());
        }
    }
    let shape = [length, player.model.vocab_size()];
    let whole = |bytes| HostTensor::new(player.model.dtype(), shape, bytes);
    Ok(bytes.into_iter().map(whole).collect::<Result<_, _>>()?)
}

/// Every bit of every pair.
fn bits(pairs: &[Pair]) -> Verdict {
    let reports = pairs.iter().map(|pair| (pair, bit_exact(&pair.got.view(), &pair.base.view())));
    let wrong = reports.into_iter().find(|(_, report)| !report.is_exact());
    let note = wrong.as_ref().and_then(|(pair, _)| note(pair, "differs"));
    Verdict {
        held: wrong.is_none(),
        report: wrong.map(|(_, report)| report),
        tolerance: None,
        notes: note.into_iter().collect(),
        engine_ms: 0.0,
    }
}

/// The composition is one that the model cannot carry, and that is said.
fn refused_composition(player: &Player, step: usize) -> Result<Verdict, MetaError> {
    match player.start(step) {
        Err(error @ EngineError::Composition { .. }) => Ok(Verdict {
            held: true,
            report: None,
            tolerance: None,
            notes: vec![error.to_string()],
            engine_ms: 0.0,
        }),
        Err(error) => Err(error.into()),
        Ok(_) => Err(MetaError::NotRefused { what: "a decoder of this composition" }),
    }
}

/// Every logit of every pair within [`NEAR`].
pub(super) fn near(pairs: &[Pair]) -> Result<Verdict, MetaError> {
    let mut verdict =
        Verdict { held: true, report: None, tolerance: None, notes: Vec::new(), engine_ms: 0.0 };
    for pair in pairs {
        let found = nearness(&pair.got, &pair.base)?;
        if !found.held && verdict.held {
            verdict.held = false;
            verdict.report = Some(bit_exact(&pair.got.view(), &pair.base.view()));
            verdict.notes.extend(note(pair, "is further away"));
            verdict.tolerance = Some(found);
        } else if verdict.held
            && !verdict.tolerance.as_ref().is_some_and(|known| share(known) >= share(&found))
        {
            verdict.tolerance = Some(found);
        }
    }
    Ok(verdict)
}

/// How far logits are from others, in ulp of the largest of those.
pub(super) fn nearness(
    got: &HostTensor,
    base: &HostTensor,
) -> Result<ToleranceReport, LengthMismatch> {
    let wanted = base.to_f64();
    let size = wanted.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    check_tolerance(&got.view(), &wanted, &vec![size; wanted.len()], NEAR, Zeros::Unsigned)
}

/// Every pair within the error budget of its first answer.
fn close(bench: &mut Bench, pairs: &[Pair]) -> Result<Verdict, MetaError> {
    let mut verdict =
        Verdict { held: true, report: None, tolerance: None, notes: Vec::new(), engine_ms: 0.0 };
    let mut equal = true;
    for pair in pairs {
        let bits = bit_exact(&pair.got.view(), &pair.base.view());
        equal &= bits.is_exact();
        let truth = bench.truth.logits(&pair.ids, pair.start)?;
        let kept = Budget::new(&pair.base, &truth).check(&pair.got)?;
        if !kept.broken.is_empty() && verdict.held {
            verdict.held = false;
            verdict.report = Some(bits);
            verdict.notes.extend(note(pair, "is out of its budget"));
            verdict.notes.extend(kept.broken);
            verdict.tolerance = Some(kept.worst);
        } else if verdict.held {
            let nearer = |known: &_| share(known) >= share(&kept.worst);
            if !verdict.tolerance.as_ref().is_some_and(nearer) {
                verdict.tolerance = Some(kept.worst);
            }
        }
    }
    if equal {
        verdict.notes.push("every bit is equal".to_owned());
    }
    Ok(verdict)
}

/// The part of its bound that an answer needs.
fn share(report: &ToleranceReport) -> f64 {
    report.minimum / report.tolerance
}

fn note(pair: &Pair, does: &str) -> Option<String> {
    (!pair.what.is_empty()).then(|| format!("{} {does}", pair.what))
}
