//! LoRA adapters in the folders that mlx-lm writes: `adapter_config.json` and `adapters.safetensors`.

mod config;
mod plan;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mlx_parity_tensor::safetensors::SafetensorsFile;
use mlx_parity_tensor::{Dtype, HostTensor};
use mlx_rs::Array;

use self::config::AdapterConfig;
use crate::array::from_view;
use crate::config::ConfigFile;
use crate::error::EngineError;

/// An adapter in memory, for [`Model::mount`](crate::Model::mount). Its arrays keep the dtype of the
/// file.
#[derive(Debug, Clone)]
pub struct Adapter {
    folder: PathBuf,
    file: ConfigFile,
    config: AdapterConfig,
    tensors: BTreeMap<String, Array>,
    /// Those that are no floats, with what they are.
    unfit: Vec<String>,
    digest: String,
}

impl Adapter {
    /// Reads an adapter's folder.
    ///
    /// # Errors
    /// [`EngineError::Io`], [`EngineError::Config`] and [`EngineError::UnsupportedConfig`] for a config
    /// that is missing, malformed, or of another kind than LoRA; [`EngineError::Safetensors`] for
    /// tensors that cannot be read.
    pub fn load(folder: &Path) -> Result<Self, EngineError> {
        let file = ConfigFile::read_named(folder, "adapter_config.json")?;
        let config = AdapterConfig::read(&file)?;
        let stored = SafetensorsFile::open(folder.join("adapters.safetensors"))?;
        let mut seen = file.canonical().into_bytes();
        let (mut tensors, mut unfit) = (BTreeMap::new(), Vec::new());
        for name in stored.names() {
            let view = stored.view(name)?;
            if !matches!(view.dtype(), Dtype::F32 | Dtype::Bf16 | Dtype::F16) {
                let found = view.dtype().name();
                unfit.push(format!("{name} (found {found}, wanted f32, bf16 or f16)"));
                continue;
            }
            seen.extend(format!("\n{name} {} {:?} ", view.dtype().name(), view.shape()).bytes());
            seen.extend(view.bytes());
            tensors.insert(name.to_owned(), from_view(&view)?);
        }
        let digest = HostTensor::new(Dtype::U8, [seen.len()], seen)?.digest();
        Ok(Self { folder: folder.to_owned(), file, config, tensors, unfit, digest })
    }

    /// Identifies the adapter's config and tensors.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The dtypes its tensors have, by name.
    pub fn dtypes(&self) -> Result<BTreeMap<&str, Dtype>, EngineError> {
        self.tensors
            .iter()
            .map(|(name, array)| Ok((name.as_str(), crate::array::host_dtype(array.dtype())?)))
            .collect()
    }
}
