//! Metal kernel sources executed on the CPU: fibers or threads, with sanitizers. It can reject a kernel, never prove one.

mod arrays;
mod build;
mod check;
mod child;
mod error;
mod execute;
mod fault;
mod kernel;
mod lexer;
mod options;
mod outcome;
mod rewrite;
mod run;
mod symbols;
mod toolchain;
mod unit;
mod wrapper;

pub use error::EmuError;
pub use fault::{Fault, FaultKind, Place, ThreadId};
pub use kernel::{Input, Kernel, Launch, Output, Source, TemplateArg};
pub use options::{Mode, Options};
pub use outcome::Outcome;
pub use run::{metal_text, run};
