//! Metal kernel sources executed on the CPU: fibers or threads, with sanitizers. It can reject a kernel, never prove one.

mod error;
mod fault;
mod kernel;
mod options;
mod outcome;

pub use error::EmuError;
pub use fault::{Fault, FaultKind, Place, ThreadId};
pub use kernel::{Input, Kernel, Launch, Output, Source, TemplateArg};
pub use options::{Mode, Options};
pub use outcome::Outcome;
