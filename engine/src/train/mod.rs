//! Training of adapters: losses, gradients and updates, op for op as mlx-lm's trainer composes them.

mod adamw;
mod backward;
mod batch;
mod closure;
mod function;
mod head;
mod kernels;
mod objective;
mod pairs;
mod segmented;
mod trainer;

pub use crate::model::HeadWeight;
pub use adamw::{AdamW, AdamWOptions, clip_grad_norm};
pub use backward::Backward;
pub use batch::Rows;
pub use function::{Function, Scope, ValuesAndGradients, scope};
pub use kernels::{TrainKernels, flash_attention, flash_cce, fused_geglu};
pub(crate) use kernels::{attention, geglu};
pub use objective::Objective;
pub(crate) use pairs::Planned;
pub use trainer::{Gradients, Loss, TrainOptions, Trainer};
