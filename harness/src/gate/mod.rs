//! The gate: evidence for and against a fused kernel, and the decision that follows (design §5).
//!
//! [`evidence`], [`model`] and [`speed`] are pure functions over what was measured; [`weigh`] puts a candidate on the
//! trials of a [`bank`]; [`case`] is the work of one worker and [`run`](mod@runner) plans, runs and records it;
//! [`fold`] makes one ledger entry of the rows of a cell, and [`card`] shows it.

pub mod bank;
pub mod card;
pub mod case;
pub mod emulated;
pub mod evidence;
pub mod fold;
pub mod memory;
pub mod model;
pub mod mutants;
pub mod plan;
mod replay;
pub mod roofline;
pub mod runner;
pub mod speed;
#[cfg(test)]
mod toy;
pub mod weigh;

#[cfg(test)]
mod tests;

pub use self::{
    bank::{Bank, Composed, Effort},
    case::{GateCase, GateRow, ModelTask, Stage, replay_line},
    memory::run,
    replay::replayed,
    weigh::{Scale, Weighed, spread, told},
};
