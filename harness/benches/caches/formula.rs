//! How many bytes caches hold, from `config.json` alone.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::serve::Kv;

/// Positions a buffer grows by (`step` of mlx-lm's `KVCache`).
const STEP: usize = 256;

/// MLX's CPU allocator takes whole pages.
const PAGE: usize = 4096;

/// Bytes of the arrays, and of their pages, behind a prompt, all but the last id of it in one call, and so many steps.
pub fn bytes(dir: &Path, kv: Option<Kv>, [prompt, steps]: [usize; 2]) -> Result<[f64; 2]> {
    let text = fs::read_to_string(dir.join("config.json"))?;
    let config: Value = serde_json::from_str(&text)?;
    let number = |key: &str| config[key].as_u64().map(|number| number as usize);
    let heads = number("num_attention_heads").context("num_attention_heads")?;
    let kv_heads = number("num_key_value_heads").unwrap_or(heads);
    let hidden = number("hidden_size").context("hidden_size")?;
    let width = number("head_dim").unwrap_or(hidden / heads);
    let float = match config["torch_dtype"].as_str() {
        Some("bfloat16" | "float16") => 2,
        Some("float32") | None => 4,
        Some(other) => bail!("torch_dtype `{other}`"),
    };
    // A row of keys, or of values; packed, of codes, scales and biases.
    let rows = match kv {
        None => vec![width * float],
        Some(Kv { bits, group }) => {
            let groups = width / group as usize * float;
            vec![width * bits as usize / 8, groups, groups]
        }
    };
    let pattern = number("sliding_window_pattern");
    let layers = number("num_hidden_layers").context("num_hidden_layers")?;
    let positions = (1..=layers).map(|layer| match (number("sliding_window"), pattern) {
        (Some(window), Some(pattern)) if layer % pattern != 0 => window,
        // The first call's room is rounded up, and so is what it lacks later.
        _ => (prompt + steps).div_ceil(STEP) * STEP,
    });
    let arrays: Vec<usize> = positions
        .flat_map(|positions| rows.iter().map(move |row| kv_heads * positions * row))
        .flat_map(|bytes| [bytes; 2])
        .collect();
    let paged: usize = arrays.iter().map(|bytes| bytes.next_multiple_of(PAGE)).sum();
    Ok([arrays.iter().sum::<usize>() as f64, paged as f64])
}
