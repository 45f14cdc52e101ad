//! Layers with weights, as `mlx.nn` defines them.

mod embedding;
mod linear;
mod lora;
mod norm;
mod rope;
mod switch_linear;

pub use embedding::Embedding;
pub use linear::{Linear, Matrix, Weight};
pub(crate) use linear::{PackedWeight, Slot};
pub use lora::FusionLoss;
pub(crate) use lora::Residual;
pub use norm::{LayerNorm, RmsNorm};
pub use rope::{At, Position, Rope};
pub(crate) use switch_linear::GatherSort;
pub use switch_linear::{Experts, SwitchGlu, SwitchLinear};
