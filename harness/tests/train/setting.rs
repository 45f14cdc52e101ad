//! A model, an adapter, batches, and mlx-lm's trainer on them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, path::Path};

use mlx_parity::root::Root;
use mlx_parity_engine::train::Rows;
use mlx_parity_engine::{Adapter, LoadOptions, Model, Tokenizer};
use mlx_parity_tensor::{HostTensor, safetensors, safetensors::SafetensorsFile};
use serde_json::{Value, json};
use tempfile::TempDir;

/// From the address at Gettysburg (Lincoln, 1863).
const TEXT: &str = "Four score and seven years ago our fathers brought forth on this continent, a new \
    nation, conceived in Liberty, and dedicated to the proposition that all men are created equal. Now \
    we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so \
    dedicated, can long endure. We are met on a great battle-field of that war. We have come to dedicate \
    a portion of that field, as a final resting place for those who here gave their lives that that \
    nation might live. It is altogether fitting and proper that we should do this.";

/// The matrices of the adapter: in, out of glassllm, and where they stand in a block.
const LAYERS: [(&str, usize, usize); 4] = [
    ("self_attn.q_proj", 128, 128),
    ("self_attn.v_proj", 128, 64),
    ("mlp.gate_proj", 128, 384),
    ("mlp.down_proj", 384, 128),
];
const RANK: usize = 4;

/// MLX is not thread-safe, and libtest runs tests side by side.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct Setting {
    root: Root,
    model: PathBuf,
    dir: TempDir,
    /// Of each batch: sequences, each with the targets at its front that do not count.
    batches: Vec<Vec<(Vec<u32>, usize)>>,
}

/// How mlx-lm is to train.
pub struct Ask {
    pub iters: usize,
    pub accumulate: usize,
    pub checkpoint: bool,
    pub compile: bool,
}

pub struct Answer {
    pub losses: Vec<f32>,
    pub gradients: BTreeMap<String, HostTensor>,
    pub adapters: BTreeMap<String, HostTensor>,
}

impl Setting {
    pub fn new(model: &str) -> Self {
        let root = Root::find(None).unwrap();
        let model = root.path().join("target/mlx/models").join(model);
        let dir = tempfile::tempdir().unwrap();
        let ids = Tokenizer::load(&model).unwrap().encode(TEXT).unwrap();
        assert!(ids.len() >= 120, "{} tokens", ids.len());
        // Rows of unequal length, some with a prompt that does not count.
        let row = |at: usize, length: usize| ids[at..at + length].to_vec();
        let batches = vec![
            vec![(row(0, 30), 0), (row(30, 23), 0)],
            vec![(row(40, 31), 7), (row(70, 18), 3)],
            vec![(row(80, 40), 0), (row(20, 33), 12)],
        ];
        let setting = Self { root, model, dir, batches };
        setting.write_adapter();
        setting
    }

    pub fn load(&self) -> (Model, Adapter) {
        let model = Model::load(&self.model, &LoadOptions::default()).unwrap();
        (model, Adapter::load(&self.adapter()).unwrap())
    }

    pub fn rows(&self) -> Vec<Rows> {
        let rows = |batch: &Vec<(Vec<u32>, usize)>| {
            let sequences: Vec<_> = batch.iter().map(|(ids, skip)| (&ids[..], *skip)).collect();
            Rows::new(&sequences, 2048).unwrap()
        };
        self.batches.iter().map(rows).collect()
    }

    /// Trains with mlx-lm.
    pub fn ask(&self, ask: &Ask) -> Answer {
        let batches: Vec<Value> = self.batches.iter().map(|batch| padded(batch)).collect();
        let request = json!({
            "model": self.model, "adapter": self.adapter(), "batches": batches,
            "iters": ask.iters, "accumulate": ask.accumulate, "checkpoint": ask.checkpoint,
            "compile": ask.compile, "out": self.dir.path(),
            "optimizer": {"learning_rate": 2e-3, "weight_decay": 0.01},
        });
        let file = self.dir.path().join("request.json");
        fs::write(&file, request.to_string()).unwrap();
        let script = self.root.path().join("oracles/mlx_lm/train.py");
        let output = Command::new(self.root.oracle_python())
            .args([script, file])
            .env("HF_HUB_OFFLINE", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}");
        let losses: Vec<f64> = serde_json::from_slice(&output.stdout).unwrap();
        Answer {
            losses: losses.into_iter().map(|loss| loss as f32).collect(),
            gradients: tensors(&self.dir.path().join("gradients.safetensors")),
            adapters: tensors(&self.dir.path().join("adapters.safetensors")),
        }
    }

    fn adapter(&self) -> PathBuf {
        self.dir.path().join("adapter")
    }

    /// An adapter of the last two of four blocks, whose `lora_b` is not 0, so that no gradient is.
    fn write_adapter(&self) {
        let folder = self.adapter();
        fs::create_dir(&folder).unwrap();
        let keys: Vec<&str> = LAYERS.iter().map(|(name, ..)| *name).collect();
        let config = json!({
            "fine_tune_type": "lora", "num_layers": 2,
            "lora_parameters": {"rank": RANK, "scale": 20.0, "dropout": 0.0, "keys": keys},
        });
        fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
        let mut seed = 1_u32;
        let mut tensors = Vec::new();
        for block in [2, 3] {
            for (name, inputs, outputs) in LAYERS {
                let path = format!("model.layers.{block}.{name}");
                let mut matrix = |part: &str, shape: [usize; 2], bound: f32| {
                    let values: Vec<f32> =
                        (0..shape[0] * shape[1]).map(|_| bound * uniform(&mut seed)).collect();
                    let tensor = HostTensor::from_f32(shape, &values).unwrap();
                    tensors.push((format!("{path}.{part}"), tensor));
                };
                matrix("lora_a", [inputs, RANK], 1.0 / (inputs as f32).sqrt());
                matrix("lora_b", [RANK, outputs], 1e-3);
            }
        }
        let named = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
        let file = folder.join("adapters.safetensors");
        safetensors::write(file, named, &BTreeMap::new()).unwrap();
    }
}

/// A batch as `iterate_batches` lays it out.
fn padded(batch: &[(Vec<u32>, usize)]) -> Value {
    let longest = batch.iter().map(|(ids, _)| ids.len()).max().unwrap();
    let width = 1 + longest.next_multiple_of(32);
    let ids = batch.iter().map(|(ids, _)| {
        let mut row = ids.clone();
        row.resize(width, 0);
        row
    });
    let lengths: Vec<_> = batch.iter().map(|(ids, skip)| [*skip, ids.len()]).collect();
    json!({"ids": ids.collect::<Vec<_>>(), "lengths": lengths})
}

/// From -1 to 1.
fn uniform(state: &mut u32) -> f32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*state >> 8) as f32 / 8_388_608.0 - 1.0
}

fn tensors(file: &Path) -> BTreeMap<String, HostTensor> {
    let file = SafetensorsFile::open(file).unwrap();
    let names: Vec<String> = file.names().map(str::to_owned).collect();
    names.into_iter().map(|name| (name.clone(), file.view(&name).unwrap().to_host())).collect()
}
