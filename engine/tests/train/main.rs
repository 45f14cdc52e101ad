//! Training: beside mlx-lm's trainer bit for bit, and against itself by every way of computing gradients.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "this binary uses a part of it")]
#[path = "../common/mod.rs"]
mod common;
mod functions;
mod kernels;
mod memory;
mod objectives;
mod parity;
mod setting;
mod ways;
