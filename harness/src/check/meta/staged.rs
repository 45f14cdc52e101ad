//! Steps in compiled segments, steps that fail half way, and tokens that are taken back.

use std::ops::ControlFlow;

use mlx_parity_engine::{
    DecodeMode, Decoder, EngineError, GenerateOptions, Model, SpeculateOptions, speculate_with,
};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{
    MetaError,
    paths::{Pair, others, saved},
    player::Player,
};

/// More points than any step has.
const POINTS: usize = 1000;

/// Points from one that fails to the next; `engine/tests/compiled` has every one.
const STRIDE: usize = 3;

/// Steps behind a failed one.
const FOLLOWING: usize = 3;

/// Tokens generated to be compared: past a window of 16 behind half of a prompt.
const GENERATED: usize = 24;

/// Compiled steps beside eager ones, with a save and a load in between.
pub(super) fn compiled(player: &Player, ids: &[u32], at: usize) -> Result<Vec<Pair>, MetaError> {
    let (first, rest) = ids.split_at(at);
    let half = rest.len() / 2;
    let run = |mode: DecodeMode| {
        let mut decoder = player.start(at)?;
        decoder.prefill(first)?;
        decoder.set_mode(mode)?;
        let mut steps = Vec::new();
        for (step, &id) in rest.iter().enumerate() {
            if step == half {
                saved(&mut decoder, player)?;
                decoder.set_mode(mode)?;
            }
            steps.push(decoder.step(id)?);
        }
        joined(&steps)
    };
    let (base, got) = (run(DecodeMode::Eager)?, run(DecodeMode::Compiled)?);
    Ok(vec![Pair { what: String::new(), ids: ids.to_vec(), start: at, base, got }])
}

/// A step that fails at every third of its points in turn, and the eager one that follows it.
pub(super) fn failed(player: &Player, ids: &[u32], at: usize) -> Result<Vec<Pair>, MetaError> {
    let (first, rest) = ids.split_at(at);
    let fresh = || {
        let mut decoder = player.start(at)?;
        decoder.prefill(first)?;
        Ok::<_, MetaError>(decoder)
    };
    // What a failed step leaves shows in the next ones.
    let rest = &rest[..rest.len().min(FOLLOWING)];
    let base = steps(&mut fresh()?, rest)?;
    let mut pairs = Vec::new();
    for point in (0..POINTS).step_by(STRIDE) {
        let mut decoder = fresh()?;
        decoder.set_mode(DecodeMode::Compiled)?;
        decoder.fail_next_step(point)?;
        match decoder.step(rest[0]) {
            // The step has no more points.
            Ok(_) if point > 0 => return Ok(pairs),
            Ok(_) => return Err(MetaError::NotRefused { what: "a step that was to fail" }),
            Err(EngineError::Injected { point }) => {
                if decoder.offset() != at {
                    return Err(MetaError::NotRefused { what: "a position of a failed step" });
                }
                decoder.set_mode(DecodeMode::Eager)?;
                let got = steps(&mut decoder, rest)?;
                let what = format!("behind a step that failed at {point}");
                pairs.push(Pair { what, ids: ids.to_vec(), start: at, base: base.clone(), got });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(MetaError::NotRefused { what: "a step of a thousand points" })
}

/// Other tokens in one call, taken back, twice.
pub(super) fn rolled_back(
    decoder: &mut Decoder,
    model: &Model,
    ids: &[u32],
    tokens: usize,
) -> Result<(), MetaError> {
    let seen = decoder.offset();
    for _ in 0..2 {
        decoder.verify(&others(model, ids, tokens))?;
        decoder.rollback(tokens)?;
    }
    if decoder.offset() == seen {
        return Ok(());
    }
    let did = format!("left {}", decoder.offset());
    Err(MetaError::Trim { asked: tokens, seen, did, wanted: "as many as before" })
}

/// Greedy ids with guesses, by a draft that is always right and by one that often is not.
pub(super) fn speculated(
    player: &Player,
    ids: &[u32],
    guesses: usize,
) -> Result<Vec<Pair>, MetaError> {
    let prompt = &ids[..ids.len().div_ceil(2)];
    let base = player.known("greedy".to_owned(), || greedy(player, prompt))?;
    let contexts = [("the model itself guesses", 0), ("the model guesses in another context", 5)];
    let pair = |(what, context): (&str, usize)| {
        let mut model = player.start(prompt.len())?;
        let mut draft = player.start(prompt.len())?;
        if context > 0 {
            draft.prefill(&others(player.model, ids, context))?;
        }
        let generate = GenerateOptions {
            eos_token_ids: Vec::new(),
            ..GenerateOptions::for_model(player.model, GENERATED)
        };
        let options = SpeculateOptions { generate, draft_tokens: guesses };
        let go_on = |_| ControlFlow::Continue(());
        let done = speculate_with(&mut model, &mut draft, prompt, &options, go_on)?;
        let what = format!("{what}, {} of {} right:", done.accepted, done.drafted);
        let got = whole(&done.ids)?;
        Ok(Pair { what, ids: prompt.to_vec(), start: 0, base: base.clone(), got })
    };
    contexts.into_iter().map(pair).collect()
}

/// The likeliest id, again and again.
fn greedy(player: &Player, prompt: &[u32]) -> Result<HostTensor, MetaError> {
    let mut decoder = player.start(prompt.len())?;
    let prefill = decoder.prefill(prompt)?;
    let mut logits = prefill.rows(prompt.len() - 1..prompt.len());
    let mut ids = Vec::new();
    while ids.len() < GENERATED {
        let values = logits.to_f64();
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let likeliest = values.iter().position(|value| *value == largest).unwrap_or(0) as u32;
        ids.push(likeliest);
        logits = decoder.step(likeliest)?;
    }
    whole(&ids)
}

pub(super) fn steps(decoder: &mut Decoder, ids: &[u32]) -> Result<HostTensor, MetaError> {
    let steps = ids.iter().map(|&id| decoder.step(id)).collect::<Result<Vec<_>, _>>()?;
    joined(&steps)
}

/// Logits `[1, vocab]` one behind the other.
fn joined(steps: &[HostTensor]) -> Result<HostTensor, MetaError> {
    let bytes = steps.iter().flat_map(|step| step.bytes().iter().copied()).collect();
    let vocab = steps[0].shape()[1];
    Ok(HostTensor::new(steps[0].dtype(), [steps.len(), vocab], bytes)?)
}

fn whole(ids: &[u32]) -> Result<HostTensor, MetaError> {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    Ok(HostTensor::new(Dtype::U32, [ids.len()], bytes)?)
}
