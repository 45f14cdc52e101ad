//! Fused kernels, each a candidate beside the composed ops it would replace. Nothing here knows MLX, files
//! or clocks: a kernel reads and writes host memory, and whoever holds arrays lends it theirs.
//!
//! One folder per kernel: what it claims (`mod.rs`), how it computes (`host.rs`, `kernel.metal`), what is
//! right (`reference.rs`, float64), where it is tried (`inputs.rs`) and how it can be wrong (its mutants).

#![cfg_attr(
    target_arch = "x86_64",
    expect(
        clippy::missing_transmute_annotations,
        reason = "vectors to arrays of as many bytes: the types stand beside each, in signatures"
    )
)]
#![expect(
    clippy::inline_always,
    reason = "a task is compiled for each set of instructions by inlining"
)]

mod affine;
mod call;
mod candidate;
mod dot;
mod draw;
mod error;
pub mod exact;
mod flash_attention;
mod flash_attention_vjp;
mod flash_cce;
mod flash_cce_vjp;
mod fused_decode_sdpa;
mod fused_geglu;
mod fused_geglu_vjp;
mod fused_mlp;
mod fused_qkv_rope;
mod fused_swiglu;
mod fused_swiglu_f32;
mod gated;
mod gemm;
mod how;
mod lanes;
mod launch;
pub mod ledger;
pub mod limits;
mod linear;
mod list;
pub mod numbers;
mod parallel;
mod rows;
mod spec;
mod widen;

pub use call::{Buffer, Call, Data, Operand, Out, Params, View};
pub use candidate::{Candidate, Expected, Probe, ShapeClass, Trial};
pub use error::KernelError;
pub use how::{How, Path};
pub use list::{CANDIDATES, candidate};
pub use spec::{Claim, Metal, MetalLaunch, Mutant, Source, Spec, Spread};
