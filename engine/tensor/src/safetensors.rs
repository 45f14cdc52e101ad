//! Strict safetensors files and model folders.
//!
//! The format is the one of the `safetensors` crate: eight bytes of header length, a JSON header, the data.
//! MLX's own loader accepts overlapping tensors, holes, trailing bytes and duplicate keys; here each is an error
//! that names the file, what was found and what was wanted. The `safetensors` crate has the last word: what it
//! refuses is refused.

mod checkpoint;
mod error;
mod file;
mod header;
mod write;

pub use checkpoint::Checkpoint;
pub use error::{Fault, SafetensorsError};
pub use file::SafetensorsFile;
pub use header::{Entry, Header, MAX_HEADER};
pub use write::{write, write_atomically};
