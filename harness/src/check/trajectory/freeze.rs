//! Making a trajectory.

use std::{collections::BTreeMap, path::Path};

use mlx_parity_engine::{Decoder, EngineError, LoadOptions, Model, Tokenizer};
use mlx_parity_tensor::{HostTensor, safetensors};

use super::{
    Stop, ids,
    play::{forced, last_row},
};
use crate::{
    case::{DecodeFrom, Prompt, Trajectory},
    golden::Composition,
    oracle::COMPOSITION,
    worker::Job,
};

/// Plays the trajectory of a job's case and writes it to `out`: `<prompt>.ids`, u32, and `<prompt>.logits`, with the
/// composition in the metadata under [`COMPOSITION`].
pub fn freeze(job: &Job, out: &Path) -> Result<(), String> {
    frozen_anew(job, out).map_err(|stop| stop.to_string())
}

fn frozen_anew(job: &Job, out: &Path) -> Result<(), Stop> {
    let (trajectory, folder) =
        job.case.trajectory().zip(job.model.as_ref()).ok_or(Stop::NotAReplay)?;
    let model = Model::load(folder, &LoadOptions::default())?;
    let mut tensors = Vec::new();
    let mut composition = None;
    for prompt in &trajectory.prompts {
        let prompt_ids = match &prompt.prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) => Tokenizer::load(folder)?.encode(text)?,
        };
        // Tier L1 as it is, whatever levers the environment pulls.
        let mut decoder = Decoder::new(&model, trajectory.prefill_step);
        let (all, logits) = walk(&mut decoder, trajectory, &prompt.name, prompt_ids)?;
        composition = Some(describe(&decoder));
        tensors.push((format!("{}.ids", prompt.name), ids(&all)?));
        tensors.push((format!("{}.logits", prompt.name), logits));
    }
    let text = serde_json::to_string(&composition).expect("a composition is plain data");
    let metadata = BTreeMap::from([(COMPOSITION.to_owned(), text)]);
    let named = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(out, named, &metadata).map_err(|error| Stop::Steps(error.to_string()))
}

/// The ids and logits of one prompt.
fn walk(
    decoder: &mut Decoder<'_>,
    trajectory: &Trajectory,
    name: &str,
    mut ids: Vec<u32>,
) -> Result<(Vec<u32>, HostTensor), Stop> {
    let positions = trajectory.positions;
    if trajectory.decode_from == DecodeFrom::Prompt {
        let Some(context) = ids.len().checked_sub(positions).filter(|context| *context > 0) else {
            let found = ids.len();
            let message = format!(
                "prompt `{name}` has {found} ids, wanted more than {positions}: one at least before the positions"
            );
            return Err(Stop::Steps(message));
        };
        let logits = forced(decoder, &ids[..context], &ids[context..])?;
        return Ok((ids, logits));
    }
    let mut row = last_row(&decoder.prefill(&ids)?);
    let (dtype, vocab) = (row.dtype(), row.len());
    let mut bytes = Vec::new();
    for at in 0..positions {
        bytes.extend_from_slice(row.bytes());
        let id = likeliest(&row);
        ids.push(id);
        if at + 1 < positions {
            row = decoder.step(id)?;
        }
    }
    let logits = HostTensor::new(dtype, [positions, vocab], bytes).map_err(EngineError::from)?;
    Ok((ids, logits))
}

/// The greedy choice: the first of the largest.
fn likeliest(row: &HostTensor) -> u32 {
    let values = row.to_f64();
    let best =
        (1..values.len()).fold(0, |best, at| if values[at] > values[best] { at } else { best });
    best as u32
}

fn describe(decoder: &Decoder<'_>) -> Composition {
    Composition {
        cache: decoder.cache_names(),
        prefill_step: decoder.prefill_step_size(),
        batch: 1,
        attention: "mx.fast.scaled_dot_product_attention".to_owned(),
        kernels: Vec::new(),
        conversion: None,
        adapter: None,
        denoising: None,
    }
}
