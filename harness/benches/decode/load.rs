//! How long a model takes to load, and how much memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use mlx_parity::{root::Root, synthetic::Stream};
use mlx_parity_engine::{LoadOptions, Model};
use mlx_parity_tensor::{Dtype, HostTensor, safetensors};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::table::median;

/// The argument that makes this binary load a model, say what it took, and end.
pub const LOAD: &str = "--load";

/// The table's head.
pub const HEAD: &str = "\
| model | weights MB | ready after s | peak memory over the weights MB |
|---|---|---|---|";

const HIDDEN: usize = 512;
const INNER: usize = 1536;
const VOCAB: usize = 1536;
const LAYERS: usize = 7;

#[derive(Serialize, Deserialize)]
struct Loaded {
    seconds: f64,
    /// The most that was resident, in kB; none where the system does not say.
    peak_kb: Option<u64>,
}

/// Loads a model.
pub fn serve(dir: &Path) -> Result<()> {
    let start = Instant::now();
    let model = Model::load(dir, &LoadOptions::default())?;
    let seconds = start.elapsed().as_secs_f64();
    let loaded = Loaded { seconds, peak_kb: peak_kb() };
    drop(model);
    println!("{}", serde_json::to_string(&loaded)?);
    Ok(())
}

fn peak_kb() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// A model's line: medians of fresh processes.
pub fn row(name: &str, dir: &Path, rounds: usize) -> Result<String> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        let output = Command::new(std::env::current_exe()?).arg(LOAD).arg(dir).output()?;
        ensure!(output.status.success(), "{}: {}", name, String::from_utf8_lossy(&output.stderr));
        all.push(serde_json::from_slice::<Loaded>(&output.stdout)?);
    }
    let weights = weights_mb(dir)?;
    let over = all.iter().filter_map(|loaded| loaded.peak_kb).map(|kb| kb as f64 * 1024.0 / 1e6);
    let over = median(over) - weights;
    let seconds = median(all.iter().map(|loaded| loaded.seconds));
    Ok(format!("| {name} | {weights:.1} | {seconds:.3} | {over:.0} |"))
}

fn weights_mb(dir: &Path) -> Result<f64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "safetensors") {
            bytes += fs::metadata(entry.path())?.len();
        }
    }
    Ok(bytes as f64 / 1e6)
}

/// A llama of 98 MB in f32, made once.
pub fn folder(root: &Root) -> Result<PathBuf> {
    let dir = root.path().join("target/mlx/models/bench-98mb");
    if dir.join("config.json").is_file() {
        return Ok(dir);
    }
    fs::create_dir_all(&dir)?;
    let mut tensors = vec![
        matrix("model.embed_tokens", [VOCAB, HIDDEN])?,
        tensor("model.norm.weight", &[HIDDEN])?,
    ];
    for layer in (0..LAYERS).map(|i| format!("model.layers.{i}")) {
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            tensors.push(tensor(&format!("{layer}.{norm}.weight"), &[HIDDEN])?);
        }
        for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            tensors.push(matrix(&format!("{layer}.self_attn.{name}"), [HIDDEN, HIDDEN])?);
        }
        for name in ["gate_proj", "up_proj"] {
            tensors.push(matrix(&format!("{layer}.mlp.{name}"), [INNER, HIDDEN])?);
        }
        tensors.push(matrix(&format!("{layer}.mlp.down_proj"), [HIDDEN, INNER])?);
    }
    let named = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(dir.join("model.safetensors"), named, &BTreeMap::new())?;
    let config = json!({
        "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "intermediate_size": INNER, "num_attention_heads": 8, "rms_norm_eps": 1e-5,
        "vocab_size": VOCAB, "tie_word_embeddings": true,
    });
    fs::write(dir.join("config.json"), config.to_string())?;
    Ok(dir)
}

fn matrix(path: &str, shape: [usize; 2]) -> Result<(String, HostTensor)> {
    tensor(&format!("{path}.weight"), &shape)
}

fn tensor(name: &str, shape: &[usize]) -> Result<(String, HostTensor)> {
    let count: usize = shape.iter().product();
    let stream = Stream::named(name);
    let values: Vec<f32> =
        (0..count as u64).map(|i| (stream.draw(i) >> 40) as f32 / (1 << 24) as f32 - 0.5).collect();
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok((name.to_owned(), HostTensor::new(Dtype::F32, shape, bytes)?))
}
