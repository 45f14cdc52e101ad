//! Telling models apart without reading all of them.

use mlx_parity_tensor::safetensors::Checkpoint;
use mlx_parity_tensor::{Dtype, HostTensor};

use crate::config::ConfigFile;
use crate::error::EngineError;

/// Bytes of each tensor that are looked at.
const SAMPLE: usize = 4096;

/// A digest of the config and of every tensor's name, dtype, shape and first bytes. Two trainings of
/// one architecture differ in it; a copy in another folder does not.
pub(super) fn of(file: &ConfigFile, checkpoint: &Checkpoint) -> Result<String, EngineError> {
    let mut seen = file.canonical().into_bytes();
    let mut names: Vec<&str> = checkpoint.names().collect();
    names.sort_unstable();
    for name in names {
        let view = checkpoint.view(name)?;
        seen.extend(format!("\n{name} {} {:?} ", view.dtype().name(), view.shape()).into_bytes());
        seen.extend(&view.bytes()[..SAMPLE.min(view.bytes().len())]);
    }
    Ok(HostTensor::new(Dtype::U8, [seen.len()], seen)?.digest())
}
