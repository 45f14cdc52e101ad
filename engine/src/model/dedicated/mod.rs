//! Architectures that fit no descriptor, each with a network of its own.

pub(super) mod diffusion_gemma;
pub(super) mod gemma4;
pub(super) mod qwen3_5;
