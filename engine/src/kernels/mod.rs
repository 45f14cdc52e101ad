//! Fused kernels on the engine's arrays: which are on, how they are called, and the composed ops they
//! stand beside. What they compute is in the crate `mlx_parity_kernels`.
//!
//! A kernel is on by default only where the accepted ledger promotes it for this machine, dtype and class
//! of shapes, and its sources are those that were promoted. A [`Policy`] says which levers a
//! [`Decoder`](crate::Decoder) may pull; models offer their calls through `sites`.

mod baseline;
mod counters;
mod defaults;
mod deferred;
mod host;
mod launch;
mod policy;
mod prepared;
pub(crate) mod sites;

pub use baseline::baseline;
pub use counters::{dispatches, dispatches_of, reset_dispatches};
pub use defaults::here;
pub use launch::{call, run};
pub use policy::{ENVIRONMENT, Lever, Policy, Switch};
pub use prepared::{Prepared, Results};

pub(crate) use policy::{Active, scope};
