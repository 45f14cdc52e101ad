//! Architectures with a network of their own.

pub(super) mod qwen3_5;
