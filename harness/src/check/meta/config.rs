//! A changed config must change the logits, or be refused; a harmless change must do neither.

use std::{fs, ops::ControlFlow, os::unix::fs::symlink, path::Path, time::Instant};

use mlx_parity_engine::{Decoder, DenoiseOptions, EngineError, Model, Sampler};
use mlx_parity_tensor::{Dtype, HostTensor};
use tempfile::TempDir;

use super::{Bench, MetaError, Verdict};
use crate::{
    compare::bit_exact,
    meta::{ConfigChange, Effect},
};

/// Loads the model under a changed config and looks at what came of it.
pub(super) fn check(bench: &Bench, change: &ConfigChange) -> Result<Verdict, MetaError> {
    let folder = changed(bench.dir, change)?;
    let started = Instant::now();
    let loaded = Model::load(folder.path(), &bench.options);
    let verdict = match (&change.effect, loaded) {
        (Effect::Refused(says), loaded) => refusal(says, loaded.err()),
        (_, Err(error)) => return Err(error.into()),
        (effect, Ok(model)) => {
            let base = if let Some(base) = bench.unchanged.get() {
                base
            } else {
                let base = logits(&bench.model, &bench.ids)?;
                bench.unchanged.get_or_init(|| base)
            };
            answer(effect, &logits(&model, &bench.ids)?, base)
        }
    };
    Ok(Verdict { engine_ms: started.elapsed().as_secs_f64() * 1e3, ..verdict })
}

/// What a model says to a prompt: its prefill, or all steps of its first canvas, `[rows, vocab]`.
fn logits(model: &Model, ids: &[u32]) -> Result<HostTensor, MetaError> {
    if !model.denoises() {
        return Ok(Decoder::new(model, ids.len()).prefill(ids)?);
    }
    let options = DenoiseOptions {
        temperature: 0.7,
        sampler: Sampler::EntropyBound,
        min_canvas_length: Some(1),
        ..DenoiseOptions::default()
    };
    let (mut bytes, mut failed) = (Vec::new(), None);
    model.denoise(ids, &options, |step| match step.tensors() {
        Ok(_) if step.canvas > 1 => ControlFlow::Break(()),
        Ok(tensors) => {
            let logits = tensors.into_iter().filter(|(name, _)| *name == "logits");
            bytes.extend(logits.flat_map(|(_, tensor)| tensor.into_bytes()));
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    let row = model.vocab_size() * Dtype::F32.size();
    Ok(HostTensor::new(Dtype::F32, [bytes.len() / row, model.vocab_size()], bytes)?)
}

/// A copy of the model's folder with another config; all other files are links.
fn changed(dir: &Path, change: &ConfigChange) -> Result<TempDir, MetaError> {
    let folder = tempfile::tempdir()?;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name != "config.json" {
            symlink(dir.canonicalize()?.join(&name), folder.path().join(&name))?;
        }
    }
    let config = change.apply(&fs::read_to_string(dir.join("config.json"))?)?;
    fs::write(folder.path().join("config.json"), config)?;
    Ok(folder)
}

fn refusal(says: &str, error: Option<EngineError>) -> Verdict {
    let note = match error.map(|error| error.to_string()) {
        Some(message) if message.contains(says) => return verdict(true, Vec::new()),
        Some(message) => format!("wanted a refusal that names `{says}`, found: {message}"),
        None => format!("wanted a refusal that names `{says}`, but the model loads"),
    };
    verdict(false, vec![note])
}

fn answer(effect: &Effect, got: &HostTensor, base: &HostTensor) -> Verdict {
    let report = bit_exact(&got.view(), &base.view());
    if *effect == Effect::Same {
        let held = report.is_exact();
        return Verdict { report: (!held).then_some(report), ..verdict(held, Vec::new()) };
    }
    let finite = got.to_f64().iter().all(|value| value.is_finite());
    let note = match (report.is_exact(), finite) {
        (false, true) => return verdict(true, Vec::new()),
        (true, _) => "wanted other logits, found the same bits: the key is read by nothing",
        (_, false) => "wanted other logits, found NaN or infinity",
    };
    verdict(false, vec![note.to_owned()])
}

fn verdict(held: bool, notes: Vec<String>) -> Verdict {
    Verdict { held, report: None, tolerance: None, notes, engine_ms: 0.0 }
}
