//! Compiled decode steps: the eager step's bits over every architecture, steps that fail and leave no
//! trace of themselves, and machines on which MLX does not compile.

#[expect(dead_code, reason = "these files use a part of it")]
#[path = "../common/mod.rs"]
mod common;

mod bits;
mod fused;
mod models;
mod refusals;
#[cfg(debug_assertions)]
mod transactions;
