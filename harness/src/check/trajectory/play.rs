//! Playing a frozen trajectory.

use mlx_parity_engine::{Decoder, EngineError};
use mlx_parity_tensor::HostTensor;

use super::Stop;
use crate::{
    case::{NamedPrompt, Trajectory},
    golden::Golden,
    stats::{Position, ScoreOptions, score},
};

/// One prompt of a frozen trajectory.
pub(super) struct Part {
    /// All ids: the context, then those that the scored positions predict.
    pub(super) ids: Vec<u32>,
    /// Ids of the context.
    pub(super) context: usize,
    /// Logits of the scored positions.
    pub(super) logits: HostTensor,
}

impl Part {
    /// The ids that the scored positions predict.
    fn targets(&self) -> &[u32] {
        &self.ids[self.context..]
    }
}

/// The prompts of a golden.
pub(super) fn frozen(trajectory: &Trajectory, golden: &Golden) -> Result<Vec<Part>, Stop> {
    let part = |prompt: &NamedPrompt| {
        let ids = golden.tensor(&format!("{}.ids", prompt.name))?;
        let logits = golden.tensor(&format!("{}.logits", prompt.name))?;
        let ids: Vec<u32> = ids.to_f64().into_iter().map(|id| id as u32).collect();
        let positions = trajectory.positions;
        if logits.shape().first() != Some(&positions) || ids.len() <= positions {
            let message = format!("the golden has {} ids of {}", ids.len(), prompt.name);
            return Err(Stop::Steps(message));
        }
        Ok(Part { context: ids.len() - positions, ids, logits })
    };
    trajectory.prompts.iter().map(part).collect()
}

/// Logits of the scored positions, teacher-forced.
pub(super) fn play(decoder: &mut Decoder<'_>, part: &Part) -> Result<HostTensor, EngineError> {
    forced(decoder, &part.ids[..part.context], part.targets())
}

/// Logits `[targets, vocab]` that predict `targets` behind `context`.
pub(crate) fn forced(
    decoder: &mut Decoder<'_>,
    context: &[u32],
    targets: &[u32],
) -> Result<HostTensor, EngineError> {
    let first = last_row(&decoder.prefill(context)?);
    let (dtype, vocab) = (first.dtype(), first.len());
    let mut bytes = first.into_bytes();
    for id in &targets[..targets.len() - 1] {
        bytes.extend(decoder.step(*id)?.into_bytes());
    }
    Ok(HostTensor::new(dtype, [targets.len(), vocab], bytes)?)
}

pub(super) fn last_row(logits: &HostTensor) -> HostTensor {
    let rows = logits.shape()[0];
    logits.rows(rows - 1..rows)
}

/// The frozen logits of a prompt beside others.
pub(super) fn scored(part: &Part, logits: &HostTensor) -> Result<Vec<Position>, Stop> {
    let options = ScoreOptions::default();
    score(part.logits.view(), logits.view(), Some(part.targets()), &options)
        .map(|scored| scored.positions)
        .map_err(|error| Stop::Steps(error.to_string()))
}
