//! Host tensors: what crosses from the engine to the harness, and from files to both.
//!
//! A [`HostTensor`] owns row-major, little-endian bytes; a [`TensorView`] borrows them, for example from a
//! memory-mapped [`safetensors::SafetensorsFile`]. Half and 8-bit floats stay raw bits: nothing here rounds
//! unless a function says so. There is no MLX in this crate.

mod cast;
mod dtype;
mod error;
mod host;
mod layout;
pub mod safetensors;
mod view;

pub use cast::{bf16_from_f64, f8_e4m3_from_f64, f8_e5m2_from_f64, f16_from_f64};
pub use cast::{bf16_to_f32, f8_e4m3_to_f64, f8_e5m2_to_f64, f8_e8m0_to_f64, f16_to_f32};
pub use dtype::{Dtype, UnknownDtype};
pub use error::TensorError;
pub use host::HostTensor;
pub use layout::Layout;
pub use view::TensorView;
