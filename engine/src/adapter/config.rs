//! `adapter_config.json`: the keys of `load_adapters` in `mlx_lm/tuner/utils.py`. The file also holds the
//! arguments of the training, which nothing reads.

use serde::Deserialize;

use crate::config::ConfigFile;
use crate::error::EngineError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLora {
    rank: usize,
    scale: f64,
    dropout: Option<f64>,
    keys: Option<Vec<String>>,
}

/// Which layers an adapter changes, and how much.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AdapterConfig {
    /// Inner width; above 0.
    pub(super) rank: usize,
    /// Multiplies the residual.
    pub(super) scale: f64,
    /// Share of a layer's inputs that are left out in training.
    pub(super) dropout: Option<f64>,
    /// Blocks from the last one on; all of them where it is not above 0.
    pub(super) num_layers: Option<usize>,
    /// Module paths within a block, or of the whole model; every linear layer of the blocks where
    /// absent.
    pub(super) keys: Option<Vec<String>>,
}

impl AdapterConfig {
    pub(super) fn read(file: &ConfigFile) -> Result<Self, EngineError> {
        if let Some(kind) = file.get("fine_tune_type").filter(|kind| **kind != "lora") {
            return Err(file.unsupported("fine_tune_type", kind, "`lora`"));
        }
        let layers = file.get("num_layers").ok_or_else(|| file.error("`num_layers` is missing"))?;
        let Some(layers) = layers.as_i64() else {
            return Err(file.unsupported("num_layers", layers, "a whole number"));
        };
        let wire: WireLora = file.section("lora_parameters")?.wire()?;
        if wire.rank == 0 {
            return Err(file.unsupported("lora_parameters.rank", 0, "a number above 0"));
        }
        if !wire.scale.is_finite() {
            return Err(file.unsupported("lora_parameters.scale", wire.scale, "a number"));
        }
        Ok(Self {
            rank: wire.rank,
            scale: wire.scale,
            dropout: wire.dropout,
            num_layers: usize::try_from(layers).ok().filter(|layers| *layers > 0),
            keys: wire.keys,
        })
    }
}
