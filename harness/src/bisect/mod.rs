//! Where two paths of one model part: the first layer, the first op in it, and the first element.
//!
//! A *path* is the engine under a composition, with a deliberate fault or on another processor, or what
//! another engine dumped. Both run the same ids in the same model calls ([`Script`]). Intermediates are
//! compared under their names in the engine's taps ([`Point`]) at a [`Threshold`].
//!
//! Watching an intermediate keeps it from being fused or written over, so the search watches as little as
//! it can and believes nothing that the outputs of runs without watching do not bear out:
//!
//! 1. both paths run unwatched several times: they must repeat themselves, and part;
//! 2. the residual stream is halved, one point watched at a time, up to the layer they part in; then all
//!    points of that layer are watched;
//! 3. everything is watched once, for the profile by layer and for a difference that an earlier layer
//!    swallows;
//! 4. the verdict's two points, the last that is equal and the first that is not, are watched again,
//!    several times;
//! 5. every watched run must give the logits of the unwatched ones. Where one does not, watching changes
//!    the answer, and the search says that it lost the difference.

#[cfg(feature = "engine")]
mod child;
mod dump;
mod ends;
mod error;
mod gap;
mod human;
mod locate;
mod path;
mod profile;
mod report;
mod script;
mod search;
mod side;
#[cfg(test)]
mod tests;
mod walk;

#[cfg(feature = "engine")]
pub use self::child::Walker;
pub use self::{
    dump::{Dump, DumpError, save_taps},
    error::BisectError,
    gap::{Gap, Threshold},
    human::text,
    path::PathSpec,
    report::{Element, Found, LayerGap, Outcome, Report, SideName},
    script::{Script, ScriptError, parse_ids},
    search::{Options, search},
    side::{EngineSide, Side, SideError},
    walk::{CachesBefore, EnginePath, Point, Processor, Walk, Walked, Watch},
};
