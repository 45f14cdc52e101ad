//! Steps in compiled segments, and steps that fail half way.

use mlx_parity_engine::{DecodeMode, Decoder, EngineError};
use mlx_parity_tensor::HostTensor;

use super::{
    MetaError,
    paths::{Pair, saved},
    player::Player,
};

/// More points than any step has.
const POINTS: usize = 1000;

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

/// A step that fails at each of its points in turn, and the eager one that follows it.
pub(super) fn failed(player: &Player, ids: &[u32], at: usize) -> Result<Vec<Pair>, MetaError> {
    let (first, rest) = ids.split_at(at);
    let fresh = || {
        let mut decoder = player.start(at)?;
        decoder.prefill(first)?;
        Ok::<_, MetaError>(decoder)
    };
    let base = steps(&mut fresh()?, rest)?;
    let mut pairs = Vec::new();
    for point in 0..POINTS {
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

fn steps(decoder: &mut Decoder, ids: &[u32]) -> Result<HostTensor, MetaError> {
    let steps = ids.iter().map(|&id| decoder.step(id)).collect::<Result<Vec<_>, _>>()?;
    joined(&steps)
}

/// Logits `[1, vocab]` one behind the other.
fn joined(steps: &[HostTensor]) -> Result<HostTensor, MetaError> {
    let bytes = steps.iter().flat_map(|step| step.bytes().iter().copied()).collect();
    let vocab = steps[0].shape()[1];
    Ok(HostTensor::new(steps[0].dtype(), [steps.len(), vocab], bytes)?)
}
