//! How many bytes caches hold, and in how many arrays, from `config.json` alone.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::serve::Kv;

/// Positions a buffer grows by (`step` of mlx-lm's `KVCache`).
const STEP: usize = 256;

/// Bytes, and arrays, behind a prompt, all but the last id of it in one call, and so many steps.
pub fn held(dir: &Path, kv: Option<Kv>, [prompt, steps]: [usize; 2]) -> Result<(f64, usize)> {
    let text = fs::read_to_string(dir.join("config.json"))?;
    let config: Value = serde_json::from_str(&text)?;
    let number = |key: &str| config[key].as_u64().map(|number| number as usize);
    let heads = number("num_attention_heads").context("num_attention_heads")?;
    let kv_heads = number("num_key_value_heads").unwrap_or(heads);
    let hidden = number("hidden_size").context("hidden_size")?;
    let width = number("head_dim").unwrap_or(hidden / heads);
    let float = match config["torch_dtype"].as_str() {
        Some("bfloat16" | "float16") => 2.0,
        Some("float32") | None => 4.0,
        Some(other) => bail!("torch_dtype `{other}`"),
    };
    let row = match kv {
        None => width as f64 * float,
        Some(Kv { bits, group }) => {
            width as f64 * f64::from(bits) / 8.0 + 2.0 * float * width as f64 / f64::from(group)
        }
    };
    let pattern = number("sliding_window_pattern");
    let layers = number("num_hidden_layers").context("num_hidden_layers")?;
    let positions = (1..=layers).map(|layer| match (number("sliding_window"), pattern) {
        (Some(window), Some(pattern)) if layer % pattern != 0 => window,
        // The first call's room is rounded up, and so is what it lacks later.
        _ => (prompt + steps).div_ceil(STEP) * STEP,
    });
    // Keys and values; packed, each is codes, scales and biases.
    let arrays = layers * if kv.is_some() { 6 } else { 2 };
    Ok((positions.map(|positions| 2.0 * (kv_heads * positions) as f64 * row).sum(), arrays))
}
