//! Every key of every config reader is honoured, or refused where it is changed: the synthetic model of
//! each type is loaded under other values of each key. A value that loads and changes nothing is the
//! key's default, or the key is read by nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path};

use mlx_parity::{
    root::Root,
    synthetic::{self, Lane},
};
use mlx_parity_engine::{
    Decoder, EngineError, LoadOptions, Model, config::HARMLESS, config_keys, supported_model_types,
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Keys that a model may carry with any value, and why: of every type, or of the one before the dot.
const NEUTRAL: &[(&str, &str)] = &[
    ("max_position_embeddings", "a limit of training; only some scalings of rope go by it"),
    ("max_window_layers", "counts layers of a window that `use_sliding_window` closes"),
    ("audio_config", "the text model alone is run"),
    ("audio_token_id", "the text model alone is run"),
    ("boa_token_id", "the text model alone is run"),
    ("boi_token_id", "the text model alone is run"),
    ("eoa_token_id", "the text model alone is run"),
    ("eoa_token_index", "the text model alone is run"),
    ("eoi_token_id", "the text model alone is run"),
    ("image_token_id", "the text model alone is run"),
    ("video_token_id", "the text model alone is run"),
    ("vision_config", "the text model alone is run"),
    ("vision_end_token_id", "the text model alone is run"),
    ("vision_soft_tokens_per_image", "the text model alone is run"),
    ("vision_start_token_id", "the text model alone is run"),
    ("hidden_dropout_prob", "training only"),
    ("input_jitter_noise", "training only"),
    ("moe_capacity", "training only"),
    ("router_jitter_noise", "training only"),
    ("mtp_num_hidden_layers", "counts layers that draft, which are not run"),
    ("mtp_use_dedicated_embeddings", "of layers that draft, which are not run"),
    ("num_nextn_predict_layers", "counts layers that draft, which are not run"),
    ("gemma4_text.moe_intermediate_size", "this model has no experts; gemma4_text-moe has"),
    ("gemma4_text.num_experts", "this model has no experts; gemma4_text-moe has"),
    (
        "gemma4_text.num_global_key_value_heads",
        "of keys that are values; gemma4_text-large has them",
    ),
    ("gemma4_text.top_k_experts", "this model has no experts; gemma4_text-moe has"),
    ("mimo.sliding_window", "counts positions of a window that `use_sliding_window` closes"),
    ("phi3.original_max_position_embeddings", "only longrope goes by it"),
    ("phimoe.original_max_position_embeddings", "only longrope goes by it"),
    ("qwen2.sliding_window", "counts positions of a window that `use_sliding_window` closes"),
    ("qwen2_moe.intermediate_size", "of layers without experts, of which this model has none"),
    ("qwen3_5_moe.intermediate_size", "of layers without experts, of which this model has none"),
    (
        "qwen3_moe.mlp_only_layers",
        "the lists tried name the layer that it names, and such as `decoder_sparse_step` leaves out",
    ),
    ("smollm3.pretraining_tp", "neither the reference nor transformers reads it"),
];

/// Longer than any window, in one call.
const IDS: [u32; 40] = {
    let mut ids = [0; 40];
    let mut at = 0;
    while at < 40 {
        ids[at] = (at as u32 * 37 + 11) % 251;
        at += 1;
    }
    ids
};

/// What came of one value of a key.
enum Outcome {
    Moved,
    Same,
    Refused(String),
}

struct Bench {
    folder: TempDir,
    config: Map<String, Value>,
    logits: Vec<u8>,
}

impl Bench {
    fn new(source: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("model");
        synthetic::materialise(source, Lane::F32, &at).unwrap();
        let config = serde_json::from_str(&fs::read_to_string(at.join("config.json")).unwrap());
        let logits = logits(&at).unwrap();
        Self { folder, config: config.unwrap(), logits }
    }

    fn with(&self, key: &str, value: Value) -> Outcome {
        let mut config = self.config.clone();
        config.insert(key.to_owned(), value);
        let changed = tempfile::tempdir().unwrap();
        let weights = "model.safetensors";
        symlink(self.folder.path().join("model").join(weights), changed.path().join(weights))
            .unwrap();
        let text = serde_json::to_string(&config).unwrap();
        fs::write(changed.path().join("config.json"), text).unwrap();
        match logits(changed.path()) {
            Ok(logits) if logits == self.logits => Outcome::Same,
            Ok(_) => Outcome::Moved,
            Err(error) => Outcome::Refused(error.to_string()),
        }
    }

    /// Values of every type, other than the config's own.
    fn candidates(&self, key: &str) -> Vec<Value> {
        let layers = self.config.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(1);
        let kinds = |first: &str, other: &str| {
            let kind = |i| if i % 2 == 0 { first } else { other };
            Value::from((0..layers).map(kind).collect::<Vec<_>>())
        };
        let (full, sliding) = ("full_attention", "sliding_attention");
        let mut values: Vec<Value> = vec![json!(true), json!(false)];
        values.extend([0, 1, 2, 3, 7, 64].map(Value::from));
        values.extend([0.25, 2.5].map(Value::from));
        values.extend(["changed", "gelu", "LG"].map(Value::from));
        values.extend([kinds(full, full), kinds(sliding, full), kinds(full, sliding)]);
        values.push(json!((0..layers).map(|i| i % 2).collect::<Vec<_>>()));
        values.push(json!((0..layers).map(|i| (i + 1) % 2).collect::<Vec<_>>()));
        values.push(json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0 }));
        values.push(json!({ "rope_type": "linear", "type": "linear", "factor": 2.0 }));
        values.push(json!({ "group_size": 32, "bits": 7 }));
        let own = self.config.get(key);
        values.retain(|value| {
            Some(value) != own
                && own.and_then(Value::as_f64).is_none_or(|n| value.as_f64() != Some(n))
        });
        values
    }

    /// Why the key is not known to be honoured or refused; none where it is.
    /// A row of [`NEUTRAL`] that it needs goes to `excused`.
    fn complaint(
        &self,
        model_type: &str,
        key: &str,
        excused: &mut BTreeSet<&'static str>,
    ) -> Option<String> {
        let own = format!("{model_type}.{key}");
        let (mut same, mut named) = (Vec::new(), false);
        for value in self.candidates(key) {
            match self.with(key, value.clone()) {
                Outcome::Moved => return None,
                // 2 and 2.0 are one value.
                Outcome::Same => same.push(value),
                Outcome::Refused(message) => {
                    named |= message.contains(key) || message.contains("tensor");
                }
            }
        }
        if same.len() <= 1 && named {
            return None;
        }
        if let Some((name, _)) = NEUTRAL.iter().find(|(name, _)| *name == key || *name == own) {
            excused.insert(name);
            return None;
        }
        Some(format!("{own}: {} change nothing", Value::from(same)))
    }
}

fn logits(dir: &Path) -> Result<Vec<u8>, EngineError> {
    let model = Model::load(dir, &LoadOptions::default())?;
    let logits = Decoder::new(&model, IDS.len()).prefill(&IDS)?;
    Ok(logits.bytes().to_vec())
}

#[test]
fn every_key_of_every_type_is_honoured_or_refused() {
    let root = Root::find(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))).unwrap();
    let (mut complaints, mut excused) = (Vec::new(), BTreeSet::new());
    for model_type in supported_model_types() {
        let source = root.synthetic().join(model_type);
        if !source.is_dir() {
            complaints.push(format!("{model_type}: there is no goldens/synthetic/{model_type}"));
            continue;
        }
        if model_type == "diffusion_gemma" {
            continue; // It decodes nothing; its reader has tests of its own.
        }
        let bench = Bench::new(&source);
        let keys: BTreeSet<&str> = config_keys(model_type).into_iter().collect();
        complaints
            .extend(keys.iter().filter_map(|key| bench.complaint(model_type, key, &mut excused)));
        let harmless = HARMLESS.iter().map(|(key, _)| *key).filter(|key| *key != "eos_token_id");
        for key in harmless {
            if !matches!(bench.with(key, json!("changed")), Outcome::Same) {
                complaints.push(format!("{model_type}.{key} is not harmless"));
            }
        }
    }
    let idle = NEUTRAL.iter().filter(|(name, _)| !excused.contains(name));
    complaints.extend(idle.map(|(name, _)| format!("{name} is excused and need not be")));
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
