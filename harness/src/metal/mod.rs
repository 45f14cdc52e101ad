//! Metal kernels run without a Mac: cases of tier metal, and how they are judged.
//!
//! A kernel is the body of a function, as `mlx.core.fast.metal_kernel` takes it. It is emulated on the
//! CPU ([`mlx_parity_msl_emu`]), which finds what a kernel does wrong whatever it answers, and its answer
//! is held to an oracle. That can reject a kernel; it proves nothing of a GPU's own arithmetic or speed.

mod bounds;
mod case;
mod error;
mod extent;
mod judge;
mod launch;

pub use self::{
    bounds::{BACKEND, bounds},
    case::{MetalCase, MetalInput, MetalOracle, MetalOutput, TemplateValue, Trial, Values},
    error::MetalError,
    extent::{Extent, ExtentError},
    judge::{MetalVerdict, judge},
    launch::{Files, Prepared, prepare},
};
