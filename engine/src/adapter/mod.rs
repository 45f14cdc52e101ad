//! LoRA adapters in the folders that mlx-lm writes: `adapter_config.json` and `adapters.safetensors`.

mod config;
mod fresh;
mod plan;

pub use fresh::LoraShape;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mlx_parity_tensor::safetensors::{self, SafetensorsFile};
use mlx_parity_tensor::{Dtype, HostTensor, TensorView};
use mlx_rs::Array;

use self::config::AdapterConfig;
use crate::array::{from_view, to_host};
use crate::config::ConfigFile;
use crate::error::EngineError;

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapters.safetensors";

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

/// Takes a tensor into what a digest is of.
fn see(seen: &mut Vec<u8>, name: &str, view: &TensorView<'_>) {
    seen.extend(format!("\n{name} {} {:?} ", view.dtype().name(), view.shape()).bytes());
    seen.extend(view.bytes());
}

fn digest(seen: Vec<u8>) -> Result<String, EngineError> {
    Ok(HostTensor::new(Dtype::U8, [seen.len()], seen)?.digest())
}

impl Adapter {
    /// Reads an adapter's folder.
    ///
    /// # Errors
    /// [`EngineError::Io`], [`EngineError::Config`] and [`EngineError::UnsupportedConfig`] for a config
    /// that is missing, malformed, or of another kind than LoRA; [`EngineError::Safetensors`] for
    /// tensors that cannot be read.
    pub fn load(folder: &Path) -> Result<Self, EngineError> {
        let file = ConfigFile::read_named(folder, CONFIG)?;
        let config = AdapterConfig::read(&file)?;
        let stored = SafetensorsFile::open(folder.join(TENSORS))?;
        let mut seen = file.canonical().into_bytes();
        let (mut tensors, mut unfit) = (BTreeMap::new(), Vec::new());
        for name in stored.names() {
            let view = stored.view(name)?;
            if !matches!(view.dtype(), Dtype::F32 | Dtype::Bf16 | Dtype::F16) {
                let found = view.dtype().name();
                unfit.push(format!("{name} (found {found}, wanted f32, bf16 or f16)"));
                continue;
            }
            see(&mut seen, name, &view);
            tensors.insert(name.to_owned(), from_view(&view)?);
        }
        let digest = digest(seen)?;
        Ok(Self { folder: folder.to_owned(), file, config, tensors, unfit, digest })
    }

    /// The same adapter with other tensors.
    ///
    /// # Errors
    /// [`EngineError::Op`] where they cannot be computed.
    pub(crate) fn with(&self, tensors: BTreeMap<String, Array>) -> Result<Self, EngineError> {
        let mut seen = self.file.canonical().into_bytes();
        for (name, array) in &tensors {
            see(&mut seen, name, &to_host(array)?.view());
        }
        Ok(Self { tensors, unfit: Vec::new(), digest: digest(seen)?, ..self.clone() })
    }

    /// Writes the adapter's folder as mlx-lm does, each file whole or not at all.
    ///
    /// # Errors
    /// [`EngineError::Io`] and [`EngineError::Safetensors`] where a file cannot be written,
    /// [`EngineError::Op`] where a tensor cannot be computed.
    pub fn save(&self, folder: &Path) -> Result<(), EngineError> {
        let io = |file: &Path, source| EngineError::Io { file: file.to_owned(), source };
        fs::create_dir_all(folder).map_err(|source| io(folder, source))?;
        let (config, scratch) = (folder.join(CONFIG), folder.join(format!("{CONFIG}.part")));
        fs::write(&scratch, self.file.canonical()).map_err(|source| io(&scratch, source))?;
        fs::rename(&scratch, &config).map_err(|source| io(&config, source))?;
        let host = |(name, array): (&String, &Array)| Ok((name.clone(), to_host(array)?));
        let tensors = self.tensors.iter().map(host).collect::<Result<Vec<_>, EngineError>>()?;
        let named = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
        Ok(safetensors::write(folder.join(TENSORS), named, &BTreeMap::new())?)
    }

    /// Refuses an adapter that the training path cannot train.
    pub(crate) fn trainable(&self) -> Result<(), EngineError> {
        if self.config.scale == 0.0 {
            return Err(self.file.unsupported(
                "lora_parameters.scale",
                0,
                "a number that is not 0",
            ));
        }
        match self.config.dropout {
            Some(dropout) if dropout != 0.0 => {
                Err(self.file.unsupported("lora_parameters.dropout", dropout, "0"))
            }
            _ => Ok(()),
        }
    }

    /// Its tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, Array> {
        &self.tensors
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
