#![doc = include_str!("../README.md")]

mod adapter;
pub mod array;
mod attention;
mod batch;
pub mod cache;
mod compiled;
mod composition;
pub mod config;
mod decoder;
mod denoise;
mod error;
mod fault;
mod generate;
mod grad;
pub mod kernels;
mod length;
mod model;
pub mod nn;
pub mod ops;
mod place;
mod prefix;
mod runtime;
pub mod sample;
mod speculative;
mod taps;
mod tokenizer;
pub mod train;
mod weights;

pub use adapter::{Adapter, LoraShape};
pub use batch::{Batch, Left, RowId};
pub use compiled::{DecodeMode, custom_kernel_allowed, is_tracing};
pub use composition::{Composition, Convert, KvBits, Lora, Route, TILE};
pub use decoder::{DEFAULT_PREFILL_STEP_SIZE, Decoder};
pub use denoise::{DenoiseOptions, DenoiseStep, Denoised, Sampler};
pub use error::EngineError;
pub use fault::Fault;
pub use generate::{Finish, GenerateOptions, Generated, generate, generate_sampled};
pub use grad::{Vjp, vjp};
pub use mlx_rs::Array;
pub use model::blocks;
pub use model::{
    Fusion, GENERATED_BY, GeneratedFile, LoadOptions, Model, Rung, Specialization, check_config,
    config_keys, generate_networks, rungs, supported_model_types,
};
pub use prefix::PrefixStore;
pub use runtime::{
    Processor, RuntimeInfo, active_memory, clear_cache, compute_on, peak_memory, reset_peak_memory,
    runtime_info,
};
pub use speculative::{SpeculateOptions, Speculated, speculate, speculate_with};
pub use taps::Taps;
pub use tokenizer::Tokenizer;
