//! Layers with weights, as `mlx.nn` defines them.

mod embedding;
mod linear;
mod norm;
mod rope;
mod switch_linear;

pub use embedding::Embedding;
pub use linear::{Linear, Weight};
pub use norm::{LayerNorm, RmsNorm};
pub use rope::{Position, Rope};
pub(crate) use switch_linear::GatherSort;
pub use switch_linear::{Experts, SwitchGlu, SwitchLinear};
