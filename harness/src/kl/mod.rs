//! `kl`: how far two distributions over the next token are apart, position by position, on one text.
//!
//! A *teacher* and a *student* read the same tokens. Each is a model under a composition, run by the
//! engine in a worker process; a stored teacher; or a dump that another engine wrote. The text is cut into
//! windows that a model sees with nothing before them ([`windows`]); their logits come call by call, in
//! the dtype they were computed in, over the whole vocabulary, and no more than a call's are in memory
//! ([`feed`]). Every window's positions are on disk before the next one's ([`record`]), so a killed run
//! loses none and ends with the same numbers.
//!
//! What the teacher shows beside itself, computed again in a fresh process, is the floor ([`control`]);
//! thresholds are about the bounds of intervals above it ([`verdict`]).

#[cfg(feature = "engine")]
mod child;
pub mod control;
mod error;
pub mod feed;
pub mod human;
pub mod ids;
mod options;
mod pass;
pub mod plan;
pub mod plot;
mod protocol;
pub mod record;
pub mod report;
mod run;
mod side;
mod source;
mod summing;
mod tokens;
pub mod verdict;
pub mod windows;
mod worker;

#[cfg(feature = "engine")]
pub use self::child::serve;
pub use self::{
    error::KlError,
    options::{Asked, DEFAULT_WINDOW, Options, Statistics},
    report::Report,
    run::{Observer, compare},
    side::{Computed, Origin, SideInfo},
    source::Source,
    summing::Clusters,
    tokens::Tokens,
    verdict::Thresholds,
    windows::Convention,
    worker::{Trouble, Worker},
};
