//! Going through two sides call by call.

use mlx_parity_tensor::HostTensor;

use super::{error::KlError, feed::Feed, options::Options, tokens::Tokens, windows::Call};
use crate::stats::{ScoreOptions, Scored, score};

/// Takes both sides' logits of each call that has scored positions. While they are looked at, the next
/// call is under way.
pub(super) fn pass(
    calls: &[Call],
    ids: &[u32],
    feeds: [&mut dyn Feed; 2],
    mut each: impl FnMut(&Call, [HostTensor; 2]) -> Result<(), KlError>,
) -> Result<(), KlError> {
    let [a, b] = feeds;
    for (at, call) in calls.iter().enumerate() {
        // The first time two calls are asked for, later one.
        let ahead = if at == 0 { &calls[..calls.len().min(2)] } else { next(calls, at) };
        for call in ahead {
            let tokens = &ids[call.tokens.clone()];
            a.ask(call, tokens)?;
            b.ask(call, tokens)?;
        }
        let logits = [a.take()?, b.take()?];
        each(call, logits)?;
    }
    Ok(())
}

fn next(calls: &[Call], at: usize) -> &[Call] {
    calls.get(at + 1..calls.len().min(at + 2)).unwrap_or_default()
}

/// The positions of a call.
pub(super) fn score_call(
    call: &Call,
    [teacher, student]: [&HostTensor; 2],
    tokens: &Tokens,
    options: &Options,
) -> Result<Scored, KlError> {
    let how = ScoreOptions { top_k: options.statistics.top_k, ..ScoreOptions::default() };
    let targets = tokens.targets(call.scored.clone());
    let mut scored = score(teacher.view(), student.view(), Some(targets), &how)?;
    for found in &mut scored.nonfinite {
        found.position += call.rows.start;
    }
    Ok(scored)
}
