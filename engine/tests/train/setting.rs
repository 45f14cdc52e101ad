//! A model, an adapter, batches, and mlx-lm's trainer on them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{fs, path::Path};

use mlx_parity_engine::array::to_host;
use mlx_parity_engine::train::{AdamWOptions, Rows, TrainOptions};
use mlx_parity_engine::{Adapter, Array, LoadOptions, Model, Tokenizer};
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

pub fn options() -> TrainOptions {
    let optimizer = AdamWOptions { learning_rate: 2e-3, ..AdamWOptions::default() };
    TrainOptions { optimizer, ..TrainOptions::default() }
}

/// Tensors on the host.
pub fn host(tensors: &BTreeMap<String, Array>) -> BTreeMap<String, HostTensor> {
    tensors.iter().map(|(name, array)| (name.clone(), to_host(array).unwrap())).collect()
}

/// The first tensor with other bits, and how many of its values have.
pub fn first_difference(
    ours: &BTreeMap<String, HostTensor>,
    theirs: &BTreeMap<String, HostTensor>,
) -> Option<String> {
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    ours.iter().find(|(name, tensor)| theirs[*name] != **tensor).map(|(name, tensor)| {
        let pairs = tensor.to_f64().into_iter().zip(theirs[name].to_f64());
        let off: Vec<f64> = pairs.map(|(a, b)| (a - b).abs()).filter(|off| *off != 0.0).collect();
        let worst = off.iter().copied().fold(0.0, f64::max);
        format!("{name}: {} values, by {worst:e} at most", off.len())
    })
}

pub struct Setting {
    root: PathBuf,
    model: PathBuf,
    dir: TempDir,
    /// Of each batch: sequences, each with the targets at its front that do not count.
    batches: Vec<Vec<(Vec<u32>, usize)>>,
}

/// How mlx-lm is to train.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    pub accumulate: usize,
    pub checkpoint: bool,
    pub bias_correction: bool,
}

impl Default for Ask {
    fn default() -> Self {
        Self { accumulate: 1, checkpoint: false, bias_correction: false }
    }
}

pub struct Answer {
    pub losses: Vec<f32>,
    pub gradients: BTreeMap<String, HostTensor>,
    /// The gradients, clipped to [`Setting::CLIP`].
    pub clipped: BTreeMap<String, HostTensor>,
    pub adapters: BTreeMap<String, HostTensor>,
}

impl Setting {
    /// A norm that the gradients are clipped to.
    pub const CLIP: f64 = 0.5;

    /// The last two of four blocks are trained.
    pub fn new(model: &str) -> Self {
        Self::of_blocks(model, 2)
    }

    /// The last `blocks` blocks are trained.
    pub fn of_blocks(model: &str, blocks: usize) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
        let model = root.join("target/mlx/models").join(model);
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
        setting.write_adapter(blocks);
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

    /// The two rows of a batch, each alone.
    pub fn single_rows(&self, batch: usize) -> [Rows; 2] {
        [0, 1].map(|row| {
            let (ids, skip) = &self.batches[batch][row];
            Rows::new(&[(&ids[..], *skip)], 2048).unwrap()
        })
    }

    /// Trains with mlx-lm.
    pub fn ask(&self, iters: usize, ask: Ask) -> Answer {
        let batches: Vec<Value> = self.batches.iter().map(|batch| padded(batch)).collect();
        let request = json!({
            "model": self.model, "adapter": self.adapter(), "batches": batches,
            "iters": iters, "accumulate": ask.accumulate, "checkpoint": ask.checkpoint,
            "compile": false, "clip": Self::CLIP, "out": self.dir.path(),
            "optimizer": {
                "learning_rate": 2e-3, "weight_decay": 0.01, "bias_correction": ask.bias_correction,
            },
        });
        let file = self.dir.path().join("request.json");
        fs::write(&file, request.to_string()).unwrap();
        let script = self.root.join("oracles/mlx_lm/train.py");
        let output = Command::new(self.root.join("target/mlx/venv/bin/python"))
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
            clipped: tensors(&self.dir.path().join("clipped.safetensors")),
            adapters: tensors(&self.dir.path().join("adapters.safetensors")),
        }
    }

    fn adapter(&self) -> PathBuf {
        self.dir.path().join("adapter")
    }

    /// An adapter whose `lora_b` is not 0, so that no gradient is.
    fn write_adapter(&self, blocks: usize) {
        let folder = self.adapter();
        fs::create_dir(&folder).unwrap();
        let keys: Vec<&str> = LAYERS.iter().map(|(name, ..)| *name).collect();
        let config = json!({
            "fine_tune_type": "lora", "num_layers": blocks,
            "lora_parameters": {"rank": RANK, "scale": 20.0, "dropout": 0.0, "keys": keys},
        });
        fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
        let mut seed = 1_u32;
        let mut tensors = Vec::new();
        for block in 4 - blocks..4 {
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
