//! Layers with weights, as `mlx.nn` defines them.

mod embedding;
mod linear;
mod norm;
mod rope;

pub use embedding::Embedding;
pub use linear::{Linear, Weight};
pub use norm::RmsNorm;
pub use rope::Rope;
