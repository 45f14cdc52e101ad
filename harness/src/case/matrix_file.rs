//! `goldens/cases/meta/matrix.toml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path as FilePath,
};

use serde::Deserialize;

use super::{CaseError, Prompt, meta_file::WirePath, toml_dir};
use crate::{
    meta::{CacheKind, Column, KvPacking, Listed, Matrix},
    synthetic::{self, Lane, inventory},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    matrix: WireMatrix,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireMatrix {
    why: String,
    prompt: Prompt,
    bits_on: Vec<String>,
    quick: BTreeSet<String>,
    #[serde(default)]
    traits: BTreeMap<String, BTreeSet<String>>,
    #[serde(default)]
    left_out: BTreeMap<String, String>,
    cache: Vec<WireCache>,
    column: Vec<WireColumn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireCache {
    name: String,
    title: String,
    kv: Option<KvPacking>,
    lanes: Vec<Lane>,
    #[serde(default)]
    refused_for: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireColumn {
    name: String,
    paths: Vec<WirePath>,
    #[serde(default)]
    not_for: BTreeMap<String, String>,
    only_for: Option<WireOnly>,
    #[serde(default)]
    near_for: BTreeMap<String, String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireOnly {
    names: BTreeSet<String>,
    /// Why others have no check.
    why: String,
}

/// The file's name in the folder of the tier's cases.
pub(super) const FILE: &str = "matrix.toml";

/// Reads the file; its models are the folders of `synthetic`.
///
/// # Errors
/// A file or folder that cannot be read, an unknown key, a name that means nothing, a reason that says
/// nothing.
pub fn load(path: &FilePath, synthetic: &FilePath) -> Result<Matrix, CaseError> {
    let WireFile { matrix: wire } = toml_dir::read(path)?;
    let matrix = Matrix {
        models: models(synthetic)?,
        why: wire.why,
        prompt: wire.prompt,
        bits_on: wire.bits_on,
        quick: wire.quick,
        traits: wire.traits,
        left_out: wire.left_out,
        caches: wire.cache.into_iter().map(cache).collect(),
        columns: wire
            .column
            .into_iter()
            .map(|wire| column(&wire))
            .collect::<Result<_, _>>()
            .map_err(|message| invalid(path, message))?,
    };
    check(&matrix).map_err(|message| invalid(path, message))?;
    Ok(matrix)
}

fn models(synthetic: &FilePath) -> Result<Vec<Listed>, CaseError> {
    // A folder whose config cannot be read stands under its own name: its checks say what is wrong.
    let listed = |(name, dir): (String, std::path::PathBuf)| {
        let config = inventory::read_config(&dir).map(|(config, _)| config).unwrap_or_default();
        let model_type = config.get("model_type").and_then(|value| value.as_str());
        Listed { model_type: model_type.unwrap_or(&name).to_owned(), name }
    };
    let mut models: Vec<_> = synthetic::folders(synthetic)?.into_iter().map(listed).collect();
    models.sort();
    Ok(models)
}

fn cache(wire: WireCache) -> CacheKind {
    let WireCache { name, title, kv, lanes, refused_for } = wire;
    CacheKind { name, title, kv, lanes, refused_for }
}

fn column(wire: &WireColumn) -> Result<Column, String> {
    let paths = wire.paths.iter().map(WirePath::path).collect::<Result<_, _>>()?;
    Ok(Column {
        name: wire.name.clone(),
        paths,
        not_for: wire.not_for.clone(),
        only_for: wire.only_for.clone().map(|only| (only.names, only.why)),
        near_for: wire.near_for.clone(),
    })
}

/// Every name is that of a model, a trait or a cache kind, and every reason says something.
fn check(matrix: &Matrix) -> Result<(), String> {
    let models: BTreeSet<&str> = matrix.models.iter().map(|model| model.name.as_str()).collect();
    let known = |name: &str| {
        let caches = matrix.caches.iter().any(|cache| cache.name == name);
        models.contains(name) || matrix.traits.contains_key(name) || caches
    };
    let named = matrix.quick.iter().chain(matrix.traits.values().flatten());
    for name in named.chain(matrix.left_out.keys()) {
        if !models.contains(name.as_str()) {
            return Err(format!("`{name}` is no folder of goldens/synthetic"));
        }
    }
    let mut reasons: Vec<(&String, &String)> = matrix.left_out.iter().collect();
    reasons.extend(matrix.caches.iter().flat_map(|cache| &cache.refused_for));
    for column in &matrix.columns {
        reasons.extend(column.not_for.iter().chain(&column.near_for));
        if let Some((names, reason)) = &column.only_for {
            reasons.extend(names.iter().map(|name| (name, reason)));
        }
    }
    for (name, reason) in reasons {
        if !name.split('+').all(known) {
            return Err(format!("`{name}` is no model, trait or cache kind"));
        }
        if reason.trim().is_empty() {
            return Err(format!("`{name}`: say why there is no check"));
        }
    }
    let mut checks = BTreeSet::new();
    for path in matrix.columns.iter().flat_map(|column| &column.paths) {
        if !checks.insert(path.route.name()) {
            return Err(format!("the check `{}` stands twice", path.route.name()));
        }
    }
    if matrix.caches.is_empty() || checks.is_empty() {
        return Err("no `cache` or no `column` with `paths`: nothing is checked".to_owned());
    }
    Ok(())
}

fn invalid(path: &FilePath, message: String) -> CaseError {
    CaseError::Invalid { path: path.into(), name: "matrix".to_owned(), message }
}
