//! Which network runs a config: dedicated, else generated for exactly this config, else the universal
//! one, else a refusal that names the type, what mlx-lm runs it as, and what is supported.

use std::fmt;

use super::dedicated::DEDICATED;
use super::generated::GENERATED;
use super::remap;
use super::universal::Universal;
use super::universal::archs::{ARCHS, Arch};
use super::{LoadOptions, Network};
use crate::config::{self, ConfigFile};
use crate::error::EngineError;
use crate::fault::Fault;
use crate::weights::Weights;

/// A step of the ladder that [`Model::load`](crate::Model::load) climbs down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// A network written for the architecture.
    Dedicated,
    /// A network generated for exactly this config.
    Generated,
    /// The network that runs any descriptor.
    Universal,
}

impl Rung {
    /// The rung's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dedicated => "dedicated",
            Self::Generated => "generated",
            Self::Universal => "universal",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Takes a network's tensors out of a checkpoint.
pub(super) type Load =
    fn(&ConfigFile, &mut Weights, Option<Fault>) -> Result<Box<dyn Network>, EngineError>;

/// A network written for one `model_type`.
pub(super) struct Dedicated {
    pub(super) model_type: &'static str,
    /// The keys its config reader knows.
    pub(super) keys: fn() -> Vec<&'static str>,
    /// Whether it takes this config; the others go on down the ladder.
    pub(super) fits: fn(&ConfigFile) -> bool,
    /// Reads the config without the checkpoint.
    pub(super) check: fn(&ConfigFile) -> Result<(), EngineError>,
    pub(super) load: Load,
}

/// A network generated for one config.
pub(super) struct Generated {
    pub(super) model_type: &'static str,
    /// The rung of the network that it unrolls, and stands before.
    pub(super) of: Rung,
    /// Of the config ([`ConfigFile::fingerprint`]).
    pub(super) fingerprint: &'static str,
    pub(super) load: Load,
}

/// Whether a network was generated for exactly a model's config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Specialization {
    /// There is one, and it runs.
    Taken {
        /// Of the config.
        fingerprint: String,
    },
    /// There are some for the model type but none for this config: it fell back to the network that
    /// runs any config.
    FellBack {
        /// Of the config.
        fingerprint: String,
    },
    /// None was looked for: there is none for the model type, the rung was given, or a deliberate
    /// fault, which generated networks do not carry.
    NotAsked,
}

impl fmt::Display for Specialization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { fingerprint } => write!(f, "generated for {fingerprint}"),
            Self::FellBack { fingerprint } => {
                write!(f, "fell back: no network is generated for {fingerprint}")
            }
            Self::NotAsked => f.write_str("no generated network was asked for"),
        }
    }
}

/// The network chosen for a config.
pub(super) struct Choice {
    pub(super) model_type: &'static str,
    pub(super) rung: Rung,
    pub(super) specialization: Specialization,
    network: Chosen,
}

enum Chosen {
    Dedicated(&'static Dedicated),
    Generated(&'static Generated),
    Universal(&'static Arch),
}

impl Choice {
    /// Reads the config without the checkpoint.
    pub(super) fn check(&self, file: &ConfigFile) -> Result<(), EngineError> {
        match &self.network {
            Chosen::Dedicated(row) => (row.check)(file),
            // Its config is one that generation has read.
            Chosen::Generated(_) => Ok(()),
            Chosen::Universal(arch) => (arch.spec)(file).map(drop),
        }
    }

    /// Takes the network's tensors out of a checkpoint.
    pub(super) fn load(
        &self,
        file: &ConfigFile,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Box<dyn Network>, EngineError> {
        match &self.network {
            Chosen::Dedicated(row) => (row.load)(file, weights, fault),
            Chosen::Generated(row) => (row.load)(file, weights, fault),
            Chosen::Universal(arch) => {
                Ok(Box::new(Universal::load(file, (arch.spec)(file)?, weights, fault)?))
            }
        }
    }
}

/// The first rung that takes a config, or the given one.
pub(super) fn choose(file: &ConfigFile, options: LoadOptions) -> Result<Choice, EngineError> {
    let module = module(file)?;
    let print = file.fingerprint()?;
    let made_for = |row: &&Generated| row.model_type == module && row.fingerprint == print;
    // Deliberate faults are in the networks that run any config.
    let asked = options.fault.is_none();
    let generated = GENERATED.iter().find(made_for).filter(|_| asked);
    let rungs = match options.rung {
        Some(rung) => vec![rung],
        // What unrolls a dedicated network stands before it, and behind every other one.
        None if generated.is_some_and(|row| row.of == Rung::Dedicated) => vec![Rung::Generated],
        None => vec![Rung::Dedicated, Rung::Generated, Rung::Universal],
    };
    for rung in rungs {
        let Some((model_type, network)) = on_rung(rung, file, module, generated) else { continue };
        let specialization = if rung == Rung::Generated {
            Specialization::Taken { fingerprint: print }
        } else if asked && options.rung.is_none() && has_generated(module, rung) {
            Specialization::FellBack { fingerprint: print }
        } else {
            Specialization::NotAsked
        };
        return Ok(Choice { model_type, rung, specialization, network });
    }
    Err(EngineError::NoSuchRung {
        file: file.path().to_owned(),
        model_type: module.to_owned(),
        rung: options.rung,
    })
}

/// The supported type that a config runs as.
fn module(file: &ConfigFile) -> Result<&str, EngineError> {
    let found = file.model_type()?;
    if file.get("model_file").is_some() {
        return Err(file.unsupported("model_file", "custom Python code", "absent"));
    }
    let remap = remap::mlx_lm_module(found);
    let module = remap.unwrap_or(found);
    if supported_model_types().contains(&module) {
        return Ok(module);
    }
    Err(EngineError::UnknownModelType {
        file: file.path().to_owned(),
        found: found.to_owned(),
        remap,
        supported: supported_model_types(),
    })
}

/// Whether networks are generated from the one that runs a type's configs on this rung.
fn has_generated(module: &str, rung: Rung) -> bool {
    GENERATED.iter().any(|row| row.model_type == module && row.of == rung)
}

fn on_rung(
    rung: Rung,
    file: &ConfigFile,
    module: &str,
    generated: Option<&'static Generated>,
) -> Option<(&'static str, Chosen)> {
    match rung {
        Rung::Dedicated => DEDICATED
            .iter()
            .find(|row| row.model_type == module && (row.fits)(file))
            .map(|row| (row.model_type, Chosen::Dedicated(row))),
        Rung::Generated => generated.map(|row| (row.model_type, Chosen::Generated(row))),
        Rung::Universal => ARCHS
            .iter()
            .find(|arch| arch.model_type == module)
            .map(|arch| (arch.model_type, Chosen::Universal(arch))),
    }
}

/// Every `model_type` that [`Model::load`](crate::Model::load) takes under its own name. Those that
/// mlx-lm runs as one of these are taken too.
pub fn supported_model_types() -> Vec<&'static str> {
    let mut types: Vec<&'static str> = ARCHS.iter().map(|arch| arch.model_type).collect();
    types.extend(DEDICATED.iter().map(|row| row.model_type));
    types.sort_unstable();
    types.dedup();
    types
}

/// The rungs written for a model type, the first one taken first; none for a type that is not supported.
/// A generated network is of one config rather than of a type, and is not among them.
pub fn rungs(model_type: &str) -> Vec<Rung> {
    let module = remap::mlx_lm_module(model_type).unwrap_or(model_type);
    let dedicated = DEDICATED.iter().any(|row| row.model_type == module);
    let universal = ARCHS.iter().any(|arch| arch.model_type == module);
    let all = [(dedicated, Rung::Dedicated), (universal, Rung::Universal)];
    all.into_iter().filter_map(|(there, rung)| there.then_some(rung)).collect()
}

/// Every key of `config.json` that the reader of a model type gives a meaning, or takes only with the
/// value that changes nothing; none for a type that is not supported. Those of
/// [`HARMLESS`](crate::config::HARMLESS) are taken besides, and any other key is refused.
pub fn config_keys(model_type: &str) -> Vec<&'static str> {
    let of_archs = ARCHS.iter().filter(|arch| arch.model_type == model_type).map(|arch| arch.keys);
    let own = DEDICATED.iter().filter(|row| row.model_type == model_type).map(|row| row.keys);
    let mut keys: Vec<_> = of_archs.chain(own).flat_map(|keys| keys()).collect();
    if !keys.is_empty() {
        keys.extend(config::QUANTIZATION_KEYS);
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Reads a config as [`Model::load`](crate::Model::load) would, without its checkpoint.
///
/// # Errors
/// A config that is not fully understood, or an unknown `model_type`.
pub fn check_config(file: &ConfigFile) -> Result<(), EngineError> {
    choose(file, LoadOptions::default())?.check(file)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::testing::config;

    #[test]
    fn a_dedicated_network_is_never_shadowed() {
        for row in DEDICATED {
            let config = config(&json!({ "model_type": row.model_type }));
            if !(row.fits)(&config) {
                continue;
            }
            let choice = choose(&config, LoadOptions::default()).expect("a supported type");
            assert_eq!((choice.rung, choice.model_type), (Rung::Dedicated, row.model_type));
        }
    }

    #[test]
    fn a_type_stands_once_on_the_universal_rung() {
        for (i, arch) in ARCHS.iter().enumerate() {
            assert!(ARCHS[..i].iter().all(|other| other.model_type != arch.model_type));
            assert!((arch.keys)().contains(&"model_type"), "{}", arch.model_type);
        }
    }

    #[test]
    fn types_that_mlx_lm_remaps_run_as_their_target() {
        for model_type in ["mistral", "iquestcoder", "xverse"] {
            let choice =
                choose(&config(&json!({ "model_type": model_type })), LoadOptions::default());
            assert_eq!(choice.expect("it runs as llama").model_type, "llama");
        }
    }
}
