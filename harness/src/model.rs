//! The model registry, `goldens/models.toml`: every model a case may name, and where its weights are.

use std::{collections::HashSet, fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{case::CaseError, root::Root};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRegistry {
    #[serde(default)]
    model: Vec<ModelEntry>,
}

/// One registered model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModelEntry {
    /// The name cases use, `glassllm-f32`.
    pub name: String,
    /// The name tables show, `glassllm (llama 0.9M)`.
    pub subject: String,
    /// Numeric format as tables show it, `f32`, `4-bit g32`.
    pub dtype: String,
    /// Folder with `config.json` and safetensors, relative to the project.
    pub path: PathBuf,
    /// The command that puts it there.
    pub provision: String,
    /// Where the weights come from, and their licence.
    pub source: String,
}

/// All registered models.
#[derive(Debug, Clone)]
pub struct Registry(Vec<ModelEntry>);

impl Registry {
    /// Reads `goldens/models.toml`.
    pub fn load(root: &Root) -> Result<Self, CaseError> {
        let path = root.models_file();
        let text = fs::read_to_string(&path)
            .map_err(|source| CaseError::Read { path: path.clone(), source })?;
        let wire: WireRegistry =
            toml::from_str(&text).map_err(|error| CaseError::parse(&path, &error))?;
        let mut seen = HashSet::new();
        for model in &wire.model {
            if !seen.insert(&model.name) {
                let message = "this model is listed twice".to_owned();
                return Err(CaseError::Invalid { path, name: model.name.clone(), message });
            }
        }
        Ok(Self(wire.model))
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&ModelEntry> {
        self.0.iter().find(|model| model.name == name)
    }

    /// Every entry, in file order.
    pub fn iter(&self) -> impl Iterator<Item = &ModelEntry> {
        self.0.iter()
    }
}

impl ModelEntry {
    /// The folder on this machine.
    pub fn dir(&self, root: &Root) -> PathBuf {
        root.path().join(&self.path)
    }

    /// Are its files there?
    pub fn provisioned(&self, root: &Root) -> bool {
        self.dir(root).join("config.json").is_file()
    }
}
