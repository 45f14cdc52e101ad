//! `mlx_lm/models/smollm3.py`: llama with layers that have no positions.

use serde::Deserialize;

use super::{Arch, llama};
use crate::config::{ConfigFile, keys_of};
use crate::error::EngineError;
use crate::model::universal::spec::Spec;

pub(super) const ARCH: Arch = Arch { model_type: "smollm3", keys, spec };

/// What is not llama's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default = "four")]
    no_rope_layer_interval: usize,
    no_rope_layers: Option<Vec<u8>>,
    // Neither the reference nor transformers reads these for smollm3.
    #[serde(rename = "pretraining_tp")]
    _pretraining_tp: Option<u32>,
    #[serde(rename = "max_window_layers")]
    _max_window_layers: Option<usize>,
    // Taken only where no layer slides, as `layer_types` has it.
    use_sliding_window: Option<bool>,
}

fn four() -> usize {
    4
}

fn keys() -> Vec<&'static str> {
    let own = keys_of::<Wire>();
    let llama = llama::keys().into_iter().filter(|key| !own.contains(key));
    llama.chain(own.iter().copied()).collect()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let own = keys_of::<Wire>();
    let mut spec = llama::spec(&file.without(own))?;
    let wire: Wire = file.with_only(own).wire()?;
    file.only("use_sliding_window", wire.use_sliding_window.as_ref(), &[spec.window.is_some()])?;
    for (layer, rotates) in spec.layers.iter_mut().zip(rotating(file, &wire, spec.dims.num_layers)?)
    {
        if !rotates {
            layer.attention.rope = None;
        }
    }
    Ok(Spec { keeps_all: true, ..spec })
}

/// Whether each layer has positions.
fn rotating(file: &ConfigFile, wire: &Wire, layers: usize) -> Result<Vec<bool>, EngineError> {
    match &wire.no_rope_layers {
        Some(flags) if flags.len() == layers => Ok(flags.iter().map(|&flag| flag != 0).collect()),
        Some(flags) => {
            let found = format!("{} entries long", flags.len());
            let wanted = format!("num_hidden_layers = {layers} entries");
            Err(file.unsupported("no_rope_layers", found, wanted))
        }
        None if wire.no_rope_layer_interval == 0 => {
            Err(file.unsupported("no_rope_layer_interval", 0, "at least 1"))
        }
        None => Ok((1..=layers).map(|at| at % wire.no_rope_layer_interval != 0).collect()),
    }
}
