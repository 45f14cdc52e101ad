//! `goldens/synthetic/<name>/`: a config and the list of tensors the reference's class makes of it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Init, Lane, SyntheticError, packed::Packing};
use crate::digest;

/// Version of `tensors.json`.
pub(super) const SCHEMA: u32 = 1;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireInventory {
    schema: u32,
    config: String,
    tensors: Vec<WireTensor>,
    digests: BTreeMap<Lane, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTensor {
    name: String,
    shape: Vec<usize>,
    init: Init,
    #[serde(default)]
    keep_f32: bool,
    quantize: Option<WireQuantize>,
    pack_in_bf16: Option<WireQuantize>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireQuantize {
    bits: usize,
    group_size: usize,
}

/// One tensor of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name in a checkpoint of mlx-lm's layout.
    pub name: String,
    /// Its shape where it is not packed.
    pub shape: Vec<usize>,
    /// Where its values lie.
    pub init: Init,
    /// Stays f32 in the bf16 and 4-bit lanes (mlx-lm's `cast_predicate`).
    pub keep_f32: bool,
    packed: Option<Packing>,
    packed_in_bf16: Option<Packing>,
}

impl Entry {
    /// How a lane packs it, if it does.
    pub fn packing(&self, lane: Lane) -> Option<Packing> {
        match lane {
            Lane::F32 => None,
            Lane::Bf16 => self.packed_in_bf16,
            Lane::FourBit => self.packed,
        }
    }
}

/// A synthetic model: what is committed of it.
#[derive(Debug, Clone)]
pub struct Inventory {
    /// Its tensors, in the order of the file.
    pub tensors: Vec<Entry>,
    config: Map<String, Value>,
    digests: BTreeMap<Lane, String>,
    identity: String,
}

/// `config.json` of a folder.
pub fn config_file(dir: &Path) -> PathBuf {
    dir.join("config.json")
}

/// `tensors.json` of a folder.
pub fn tensors_file(dir: &Path) -> PathBuf {
    dir.join("tensors.json")
}

/// Reads a `config.json`: an object with a `model_type`, not packed.
pub fn read_config(dir: &Path) -> Result<(Map<String, Value>, String), SyntheticError> {
    let path = config_file(dir);
    let bytes = read(&path)?;
    let config: Map<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|error| SyntheticError::invalid(&path, error.to_string()))?;
    if !config.get("model_type").is_some_and(Value::is_string) {
        return Err(SyntheticError::invalid(&path, "`model_type` is missing, wanted a string"));
    }
    if config.contains_key("quantization") {
        let message = "`quantization` is there, but the 4-bit lane adds its own; delete it";
        return Err(SyntheticError::invalid(&path, message));
    }
    Ok((config, digest::of_bytes(&bytes)))
}

fn read(path: &Path) -> Result<Vec<u8>, SyntheticError> {
    fs::read(path).map_err(|source| SyntheticError::io("read", path, source))
}

impl Inventory {
    /// Reads the folder of a model.
    ///
    /// # Errors
    /// A file that is missing or malformed, or a `tensors.json` made from another config: the message
    /// names the file and the command that mends it.
    pub fn load(dir: &Path) -> Result<Self, SyntheticError> {
        let (config, config_digest) = read_config(dir)?;
        let path = tensors_file(dir);
        let bytes = match read(&path) {
            Err(SyntheticError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                return Err(SyntheticError::NoInventory { path, name: name_of(dir) });
            }
            other => other?,
        };
        let refuse = |message: String| SyntheticError::invalid(&path, message);
        let wire: WireInventory =
            serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
        if wire.schema != SCHEMA {
            return Err(refuse(format!("schema {}, this version reads {SCHEMA}", wire.schema)));
        }
        if wire.config != config_digest {
            return Err(SyntheticError::OtherConfig { path, name: name_of(dir) });
        }
        if let Some(lane) = Lane::ALL.iter().find(|lane| !wire.digests.contains_key(lane)) {
            return Err(refuse(format!("`digests` lacks the lane {}", lane.name())));
        }
        let tensors = wire.tensors.into_iter().map(|tensor| validate(&path, tensor));
        let tensors: Vec<_> = tensors.collect::<Result<_, _>>()?;
        Ok(Self { tensors, config, digests: wire.digests, identity: digest::of_bytes(&bytes) })
    }

    /// The type its config names.
    pub fn model_type(&self) -> &str {
        self.config.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The digest of the weight file of a lane, as the Python twin computed it.
    pub fn digest(&self, lane: Lane) -> &str {
        &self.digests[&lane]
    }

    /// Changes with the config (through the digest in `tensors.json`) and with every tensor.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// `config.json` of a lane, in mlx-lm's form.
    pub fn config_of(&self, lane: Lane) -> Value {
        let mut config = self.config.clone();
        let packed = |tensor: &Entry| {
            tensor.packing(lane).map(|own| (module_of(&tensor.name).to_owned(), own))
        };
        let packed: Vec<_> = self.tensors.iter().filter_map(packed).collect();
        if !packed.is_empty() {
            let mut quantization = wire_packing(lane.packing());
            quantization.insert("mode".into(), "affine".into());
            for (module, own) in packed.into_iter().filter(|(_, own)| *own != lane.packing()) {
                quantization.insert(module, wire_packing(own).into());
            }
            config.insert("quantization".into(), quantization.into());
        }
        config.into()
    }

    /// The format as tables show it.
    pub fn label(&self, lane: Lane) -> &'static str {
        let packs = self.tensors.iter().any(|tensor| tensor.packed_in_bf16.is_some());
        if packs && lane == Lane::Bf16 { "bf16, experts 8-bit" } else { lane.label() }
    }
}

fn wire_packing(packing: Packing) -> Map<String, Value> {
    let (group, bits) = (packing.group.into(), packing.bits.into());
    Map::from_iter([("group_size".to_owned(), group), ("bits".to_owned(), bits)])
}

/// The module of a weight, `lm_head` for `lm_head.weight`.
pub fn module_of(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn validate(path: &Path, wire: WireTensor) -> Result<Entry, SyntheticError> {
    let refuse = |what: String| {
        Err(SyntheticError::invalid(path, format!("tensor `{}`: {what}", wire.name)))
    };
    if wire.shape.is_empty() || wire.shape.contains(&0) {
        return refuse(format!("shape {:?}, wanted extents of at least 1", wire.shape));
    }
    let packing = |wire: WireQuantize| Packing { group: wire.group_size, bits: wire.bits };
    let (packed, packed_in_bf16) = (wire.quantize.map(packing), wire.pack_in_bf16.map(packing));
    for Packing { group, bits } in packed.into_iter().chain(packed_in_bf16) {
        let columns = wire.shape.last().copied().unwrap_or(0);
        if group == 0 || columns % group != 0 || (columns * bits) % 32 != 0 {
            return refuse(format!(
                "{columns} columns do not pack at {bits} bits in groups of {group}"
            ));
        }
        if !wire.name.ends_with(".weight") {
            return refuse("only a `….weight` is packed".into());
        }
    }
    let WireTensor { name, shape, init, keep_f32, .. } = wire;
    Ok(Entry { name, shape, init, keep_f32, packed, packed_in_bf16 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{ "model_type": "toy", "hidden_size": 64 }"#;

    fn load(config: &str, tensors: &str) -> Result<Inventory, SyntheticError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(config_file(dir.path()), config).unwrap();
        fs::write(tensors_file(dir.path()), tensors).unwrap();
        Inventory::load(dir.path())
    }

    fn file(tensor: &str) -> String {
        let digest = digest::of_bytes(CONFIG.as_bytes());
        format!(
            r#"{{ "schema": 1, "config": "{digest}", "tensors": [{tensor}],
                 "digests": {{ "f32": "a", "bf16": "b", "4bit": "c" }} }}"#
        )
    }

    const EXPERT: &str = r#"{ "name": "e.weight", "shape": [2, 64, 64], "init": "linear",
        "quantize": { "bits": 8, "group_size": 64 },
        "pack_in_bf16": { "bits": 8, "group_size": 32 } }"#;
    const LINEAR: &str = r#"{ "name": "l.weight", "shape": [64, 64], "init": "linear",
        "quantize": { "bits": 4, "group_size": 32 } }"#;

    #[test]
    fn a_lane_adds_the_packing_mlx_lm_would_write() {
        let inventory = load(CONFIG, &file(&[LINEAR, EXPERT].join(","))).unwrap();
        assert_eq!(inventory.config_of(Lane::F32)["quantization"], Value::Null);
        let wanted = serde_json::json!({ "group_size": 32, "bits": 8, "mode": "affine" });
        assert_eq!(inventory.config_of(Lane::Bf16)["quantization"], wanted);
        let wanted = serde_json::json!({
            "group_size": 32, "bits": 4, "mode": "affine", "e": { "group_size": 64, "bits": 8 }
        });
        assert_eq!(inventory.config_of(Lane::FourBit)["quantization"], wanted);
        assert_eq!(inventory.label(Lane::Bf16), "bf16, experts 8-bit");
    }

    #[rstest::rstest]
    #[case::not_json("{", "", "config.json: EOF")]
    #[case::no_type("{}", "", "config.json: `model_type` is missing")]
    #[case::packed(
        r#"{ "model_type": "x", "quantization": {} }"#,
        "",
        "the 4-bit lane adds its own"
    )]
    #[case::other_config(r#"{ "model_type": "x" }"#, &file(LINEAR), "made from another config.json")]
    #[case::unknown_kind(CONFIG, &file(&LINEAR.replace("linear", "xavier")), "unknown variant `xavier`")]
    #[case::unknown_key(CONFIG, &file(&LINEAR.replace("init", "kind")), "unknown field `kind`")]
    #[case::empty(CONFIG, &file(&LINEAR.replace("[64, 64]", "[64, 0]")), "wanted extents of at least 1")]
    #[case::columns(CONFIG, &file(&LINEAR.replace("[64, 64]", "[64, 48]")), "48 columns do not pack")]
    #[case::schema(CONFIG, &file(LINEAR).replace("\"schema\": 1", "\"schema\": 7"), "schema 7")]
    #[case::lane(CONFIG, &file(LINEAR).replace("\"bf16\": \"b\",", ""), "lacks the lane bf16")]
    fn a_bad_folder_is_one_message_that_names_the_file(
        #[case] config: &str,
        #[case] tensors: &str,
        #[case] wanted: &str,
    ) {
        let message = load(config, tensors).unwrap_err().to_string();
        assert!(message.contains(wanted) && message.contains(".json"), "{message}");
    }

    #[test]
    fn a_folder_without_tensors_names_the_command_that_asks() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(config_file(dir.path()), CONFIG).unwrap();
        let message = Inventory::load(dir.path()).unwrap_err().to_string();
        assert!(message.contains("tensors.json is missing; `mlx-parity freeze "), "{message}");
    }
}
