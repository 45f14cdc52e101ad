//! The engine's side of the pipes.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use mlx_parity_engine::{
    Composition, Convert, DecodeMode, Decoder, GenerateOptions, KvBits, LoadOptions, Model,
    active_memory, generate,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::player::Turn;

/// How keys and values are packed, from behind the first call on (`quantized_kv_start` 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kv {
    pub bits: i32,
    pub group: i32,
}

/// What a turn is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    Eager,
    Compiled,
    Fused,
    /// Bytes of the caches behind the turn.
    Memory,
    /// Seconds of a decoder's first steps.
    Starts,
}

/// One turn: a prompt and greedy ids behind it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    pub ids: Vec<u32>,
    pub tokens: usize,
    pub mode: Mode,
    pub kv: Option<Kv>,
    /// The same for `generate_step` of mlx-lm.
    pub options: Value,
}

impl Request {
    /// A turn over nothing on caches of a kind.
    pub fn of(kv: Option<Kv>) -> Self {
        let options = match kv {
            None => json!({}),
            Some(Kv { bits, group }) => {
                json!({"kv_bits": bits, "kv_group_size": group, "quantized_kv_start": 0})
            }
        };
        Self { ids: Vec::new(), tokens: 0, mode: Mode::Eager, kv, options }
    }
}

/// Bytes of the caches.
#[derive(Debug, Serialize, Deserialize)]
pub struct Memory {
    /// By which MLX's active memory shrinks when they go.
    pub held: f64,
    /// Of their arrays.
    pub arrays: f64,
    /// Of their arrays, by the formula.
    pub formula: f64,
    /// Of the pages of these, by the formula.
    pub pages: f64,
}

/// Seconds of the first and of the third step of a fresh decoder.
#[derive(Debug, Serialize, Deserialize)]
pub struct Starts {
    pub eager: [f64; 2],
    pub compiled: [f64; 2],
    pub fused: [f64; 2],
}

/// Loads a model and answers line by line.
pub fn serve(dir: &Path) -> Result<()> {
    let model = Model::load(dir, &LoadOptions::default())?;
    println!("ready");
    for line in std::io::stdin().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let answer = match request.mode {
            Mode::Eager => turn(&model, &request, DecodeMode::Eager),
            Mode::Compiled => turn(&model, &request, DecodeMode::Compiled),
            Mode::Fused => turn(&model, &request, DecodeMode::Fused),
            Mode::Memory => memory(&model, &request),
            Mode::Starts => starts(&model, &request),
        };
        println!("{}", answer?);
    }
    Ok(())
}

fn composition(model: &Model, kv: Option<Kv>) -> Composition {
    let Some(Kv { bits, group }) = kv else { return Composition::l1() };
    let packed = Composition::uniform(model, KvBits { bits, group });
    Composition { convert: Convert::AfterForward, ..packed }
}

fn turn(model: &Model, request: &Request, mode: DecodeMode) -> Result<String> {
    let mut options = GenerateOptions::for_model(model, request.tokens);
    options.eos_token_ids.clear();
    options.mode = mode;
    options.composition = composition(model, request.kv);
    let start = Instant::now();
    let mut first = None;
    let generated = generate(model, &request.ids, &options, |_| {
        first.get_or_insert_with(|| start.elapsed().as_secs_f64());
        ControlFlow::Continue(())
    })?;
    let prefill = first.context("no id")?;
    let decode = start.elapsed().as_secs_f64() - prefill;
    Ok(serde_json::to_string(&Turn { prefill, decode, ids: generated.ids })?)
}

fn memory(model: &Model, request: &Request) -> Result<String> {
    let composition = composition(model, request.kv);
    let mut decoder = Decoder::with(model, request.ids.len(), &composition)?;
    drop(decoder.prefill(&request.ids)?);
    for id in 1..request.tokens as u32 {
        decoder.step(id)?;
    }
    let (with, arrays) = (active_memory()?, decoder.cache_bytes());
    drop(decoder);
    let held = with as f64 - active_memory()? as f64;
    Ok(serde_json::to_string(&Memory { held, arrays: arrays as f64, formula: 0.0, pages: 0.0 })?)
}

fn starts(model: &Model, request: &Request) -> Result<String> {
    let composition = composition(model, request.kv);
    let seconds = |mode| -> Result<[f64; 2]> {
        let mut decoder = Decoder::with(model, request.ids.len(), &composition)?;
        decoder.prefill(&request.ids[..2])?;
        decoder.set_mode(mode)?;
        let mut step = || -> Result<f64> {
            let start = Instant::now();
            decoder.step(1)?;
            Ok(start.elapsed().as_secs_f64())
        };
        let first = step()?;
        step()?;
        Ok([first, step()?])
    };
    // Once before, so that the process is warm.
    seconds(DecodeMode::Eager)?;
    Ok(serde_json::to_string(&Starts {
        eager: seconds(DecodeMode::Eager)?,
        compiled: seconds(DecodeMode::Compiled)?,
        fused: seconds(DecodeMode::Fused)?,
    })?)
}
