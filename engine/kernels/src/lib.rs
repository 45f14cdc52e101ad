//! Fused kernels, each a candidate beside the composed ops it would replace. Nothing here knows MLX, files
//! or clocks: a kernel reads and writes host memory, and whoever holds arrays lends it theirs.
//!
//! One folder per kernel: what it claims (`mod.rs`), how it computes (`host.rs`, `kernel.metal`), what is
//! right (`reference.rs`, float64), where it is tried (`inputs.rs`) and how it can be wrong (its mutants).

mod call;
mod candidate;
mod error;
pub mod exact;
mod how;
mod list;
pub mod numbers;
mod spec;

pub use call::{Buffer, Call, Data, Operand, Out, Params, View};
pub use candidate::{Candidate, Expected, Probe, ShapeClass, Trial};
pub use error::KernelError;
pub use how::{How, Path};
pub use list::{CANDIDATES, candidate};
pub use spec::{Claim, Metal, MetalLaunch, Mutant, Source, Spec, Spread};
