//! The model registry: every model a case may name, and where its weights are.
//!
//! `goldens/models.toml` lists those with weights of their own; each folder in `goldens/synthetic` is
//! three more, `<name>-f32`, `<name>-bf16` and `<name>-4bit`, made on demand.

use std::{collections::HashSet, fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    case::CaseError,
    root::Root,
    synthetic::{self, Inventory, Lane},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRegistry {
    #[serde(default)]
    model: Vec<ModelEntry>,
}

/// The folder of a model's LoRA adapter, where it has one, within its own.
pub const ADAPTERS: &str = "adapters";

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
    /// What it is made of, where it is synthetic.
    #[serde(skip)]
    pub synthetic: Option<Synthetic>,
}

/// A synthetic model in one numeric format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synthetic {
    /// The folder with `config.json` and `tensors.json`.
    pub dir: PathBuf,
    /// The format.
    pub lane: Lane,
}

/// All registered models.
#[derive(Debug, Clone)]
pub struct Registry(Vec<ModelEntry>);

impl Registry {
    /// Reads `goldens/models.toml` and the names in `goldens/synthetic`.
    pub fn load(root: &Root) -> Result<Self, CaseError> {
        let path = root.models_file();
        let text = fs::read_to_string(&path)
            .map_err(|source| CaseError::Read { path: path.clone(), source })?;
        let wire: WireRegistry =
            toml::from_str(&text).map_err(|error| CaseError::parse(&path, &error))?;
        let mut models = wire.model;
        models.extend(synthetic_models(root)?);
        let mut seen = HashSet::new();
        for model in &models {
            if !seen.insert(&model.name) {
                let message = "this model is listed twice".to_owned();
                return Err(CaseError::Invalid { path, name: model.name.clone(), message });
            }
        }
        Ok(Self(models))
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

    /// Are its files there, or can they be made on demand?
    pub fn provisioned(&self, root: &Root) -> bool {
        self.synthetic.is_some() || self.dir(root).join("config.json").is_file()
    }

    /// Its folder, with its files in it: a synthetic model is made here if it must be.
    pub fn ready(&self, root: &Root) -> Result<PathBuf, NotReady> {
        let dir = self.dir(root);
        match &self.synthetic {
            Some(of) => synthetic::materialise(&of.dir, of.lane, &dir)?,
            None if self.provisioned(root) => {}
            None => return Err(NotReady::NotProvisioned(self.provision.clone())),
        }
        Ok(dir)
    }
}

/// A model whose files are not there.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// A command puts them there.
    #[error("model not provisioned: {0}")]
    NotProvisioned(String),
    /// They could not be made.
    #[error(transparent)]
    Synthetic(#[from] synthetic::SyntheticError),
}

fn synthetic_models(root: &Root) -> Result<Vec<ModelEntry>, CaseError> {
    let folders = synthetic::folders(&root.synthetic())?;
    let lanes = |(name, dir): (String, PathBuf)| {
        // A folder that cannot be read is refused where it is used, with its fault.
        let inventory = Inventory::load(&dir).ok();
        let label = |lane: Lane| inventory.as_ref().map_or(lane.label(), |of| of.label(lane));
        Lane::ALL.map(|lane| ModelEntry {
            name: format!("{name}-{}", lane.name()),
            subject: name.clone(),
            dtype: label(lane).to_owned(),
            path: PathBuf::from(format!("target/mlx/models/synthetic/{name}-{}", lane.name())),
            provision: "it is made on demand".to_owned(),
            source: format!("goldens/synthetic/{name}, random"),
            synthetic: Some(Synthetic { dir: dir.clone(), lane }),
        })
    };
    Ok(folders.into_iter().flat_map(lanes).collect())
}
