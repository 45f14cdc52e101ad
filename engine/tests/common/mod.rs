//! Tiny random models in temporary folders, and the one thread that may touch MLX.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use mlx_parity_engine::{EngineError, LoadOptions, Model};
use mlx_parity_tensor::{Dtype, HostTensor, safetensors};
use serde_json::{Value, json};
use tempfile::TempDir;

type Job = Box<dyn FnOnce() + Send>;

/// Runs `work` on the process's one MLX thread. libtest runs tests on threads of its own, several at
/// a time; MLX keeps streams, its memory cache and its error slot without regard for that.
pub fn on_mlx_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    static JOBS: OnceLock<Sender<Job>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (sender, receiver) = channel::<Job>();
        std::thread::spawn(move || receiver.into_iter().for_each(|job| job()));
        sender
    });
    let (sender, receiver) = channel::<Result<T, Box<dyn Any + Send>>>();
    jobs.send(Box::new(move || {
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    }))
    .expect("the MLX thread lives as long as the process");
    match receiver.recv().expect("the MLX thread answers every job") {
        Ok(value) => value,
        Err(panic) => resume_unwind(panic),
    }
}

/// A model folder in the making.
pub struct Folder {
    pub config: Value,
    pub tensors: BTreeMap<String, HostTensor>,
}

pub const VOCAB: usize = 40;
pub const HIDDEN: usize = 64;
const INNER: usize = 96;
const LAYERS: usize = 2;

impl Folder {
    pub fn llama(dtype: Dtype) -> Self {
        let mut folder =
            Self::new(dtype, "llama", &["input_layernorm", "post_attention_layernorm"]);
        folder.config["tie_word_embeddings"] = json!(true);
        folder
    }

    pub fn qwen3(dtype: Dtype) -> Self {
        let mut folder =
            Self::new(dtype, "qwen3", &["input_layernorm", "post_attention_layernorm"]);
        folder.config["tie_word_embeddings"] = json!(true);
        folder.config["rope_theta"] = json!(10_000);
        folder.add_head_norms(dtype);
        folder
    }

    pub fn gemma3_text(dtype: Dtype) -> Self {
        let norms = [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ];
        let mut folder = Self::new(dtype, "gemma3_text", &norms);
        folder.config["sliding_window"] = json!(8);
        folder.config["sliding_window_pattern"] = json!(2);
        folder.config["query_pre_attn_scalar"] = json!(16);
        folder.add_head_norms(dtype);
        folder
    }

    /// Recurrent layers, and attention in every third: the config of a synthetic model of the goldens.
    pub fn qwen3_5(dtype: Dtype) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/synthetic/qwen3_5");
        let text = std::fs::read_to_string(path.join("config.json")).expect("a synthetic model");
        let config = serde_json::from_str(&text).expect("JSON");
        let mut folder = Self { config, tensors: BTreeMap::new() };
        let root = "language_model.model";
        folder.add(&format!("{root}.embed_tokens.weight"), &[256, 64], dtype);
        folder.add(&format!("{root}.norm.weight"), &[64], dtype);
        let recurrent = [
            ("linear_attn.in_proj_qkv.weight", vec![192, 64]),
            ("linear_attn.in_proj_z.weight", vec![64, 64]),
            ("linear_attn.in_proj_b.weight", vec![4, 64]),
            ("linear_attn.in_proj_a.weight", vec![4, 64]),
            ("linear_attn.conv1d.weight", vec![192, 4, 1]),
            ("linear_attn.A_log", vec![4]),
            ("linear_attn.dt_bias", vec![4]),
            ("linear_attn.norm.weight", vec![16]),
            ("linear_attn.out_proj.weight", vec![64, 64]),
        ];
        let attention = [
            ("self_attn.q_proj.weight", vec![256, 64]),
            ("self_attn.k_proj.weight", vec![64, 64]),
            ("self_attn.v_proj.weight", vec![64, 64]),
            ("self_attn.o_proj.weight", vec![64, 128]),
            ("self_attn.q_norm.weight", vec![32]),
            ("self_attn.k_norm.weight", vec![32]),
        ];
        let both = [
            ("input_layernorm.weight", vec![64]),
            ("post_attention_layernorm.weight", vec![64]),
            ("mlp.gate_proj.weight", vec![128, 64]),
            ("mlp.up_proj.weight", vec![128, 64]),
            ("mlp.down_proj.weight", vec![64, 128]),
        ];
        for i in 0..6 {
            let mixer = if i % 3 == 2 { &attention[..] } else { &recurrent[..] };
            for (name, shape) in mixer.iter().chain(&both) {
                folder.add(&format!("{root}.layers.{i}.{name}"), shape, dtype);
            }
        }
        folder
    }

    /// A model of windows whose greedy ids differ: its stream is not the embedded token alone.
    pub fn windows(dtype: Dtype) -> Self {
        let mut folder = Self::gemma3_text(dtype);
        folder.scale("model.embed_tokens.weight", |_| 0.02);
        folder
    }

    /// Multiplies the values of a tensor by factors of their places.
    pub fn scale(&mut self, name: &str, factor: impl Fn(usize) -> f64) {
        let tensor = &self.tensors[name];
        let values = tensor.to_f64().into_iter().enumerate();
        let values: Vec<f64> = values.map(|(i, value)| value * factor(i)).collect();
        let scaled = HostTensor::from_f64_as(tensor.dtype(), tensor.shape(), &values);
        self.tensors.insert(name.to_owned(), scaled.expect("floats"));
    }

    fn new(dtype: Dtype, model_type: &str, norms: &[&str]) -> Self {
        let config = json!({
            "model_type": model_type, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
            "intermediate_size": INNER, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 16, "rms_norm_eps": 1e-6, "vocab_size": VOCAB,
            "max_position_embeddings": 512,
        });
        let mut folder = Self { config, tensors: BTreeMap::new() };
        folder.add("model.embed_tokens.weight", &[VOCAB, HIDDEN], dtype);
        folder.add("model.norm.weight", &[HIDDEN], dtype);
        for layer in (0..LAYERS).map(|i| format!("model.layers.{i}")) {
            for norm in norms {
                folder.add(&format!("{layer}.{norm}.weight"), &[HIDDEN], dtype);
            }
            for (name, shape) in [
                ("self_attn.q_proj", [64, HIDDEN]),
                ("self_attn.k_proj", [32, HIDDEN]),
                ("self_attn.v_proj", [32, HIDDEN]),
                ("self_attn.o_proj", [HIDDEN, 64]),
                ("mlp.gate_proj", [INNER, HIDDEN]),
                ("mlp.up_proj", [INNER, HIDDEN]),
                ("mlp.down_proj", [HIDDEN, INNER]),
            ] {
                folder.add(&format!("{layer}.{name}.weight"), &shape, dtype);
            }
        }
        folder
    }

    fn add_head_norms(&mut self, dtype: Dtype) {
        for layer in (0..LAYERS).map(|i| format!("model.layers.{i}")) {
            for name in ["q_norm", "k_norm"] {
                self.add(&format!("{layer}.self_attn.{name}.weight"), &[16], dtype);
            }
        }
    }

    /// Adds a tensor of pseudo-random values: norms around 1, matrices around 0.
    pub fn add(&mut self, name: &str, shape: &[usize], dtype: Dtype) {
        let mut state = name.bytes().fold(0x9e37_79b9_u64, |state, byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let (centre, spread) = if shape.len() == 1 { (1.0, 0.4) } else { (0.0, 0.5) };
        let values: Vec<f64> = (0..shape.iter().product())
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                centre + spread * ((state >> 33) as f64 / f64::from(1_u32 << 31) * 2.0 - 1.0)
            })
            .collect();
        let tensor = HostTensor::from_f64_as(dtype, shape, &values).expect("floats take any value");
        self.tensors.insert(name.to_owned(), tensor);
    }

    /// Writes `config.json` and `model.safetensors` into a new folder.
    pub fn write(&self) -> TempDir {
        let dir = TempDir::new().expect("a temporary folder");
        self.write_config(dir.path());
        write_tensors(&dir.path().join("model.safetensors"), self.tensors.iter());
        dir
    }

    pub fn write_config(&self, dir: &Path) {
        std::fs::write(dir.join("config.json"), self.config.to_string()).expect("a config");
    }

    pub fn load(&self) -> Result<Model, EngineError> {
        Model::load(self.write().path(), &LoadOptions::default())
    }
}

pub fn write_tensors<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = (&'a String, &'a HostTensor)>,
) {
    let tensors = tensors.into_iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(path, tensors, &BTreeMap::new()).expect("a safetensors file");
}

/// The largest difference of two tensors, as a part of the largest value; NaN where either has one.
pub fn distance(a: &HostTensor, b: &HostTensor) -> f64 {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    let (a, b) = (a.to_f64(), b.to_f64());
    let largest = |values: Vec<f64>| {
        values.into_iter().fold(0.0, |most: f64, value| {
            if value.is_nan() || value.abs() > most { value.abs() } else { most }
        })
    };
    let differences = a.iter().zip(&b).map(|(a, b)| a - b).collect();
    largest(differences) / largest(a)
}
