//! Statistics of two paths that may differ: by how much, and how sure that is. Pure functions over host slices, with no
//! MLX, files or clocks.
//!
//! All logarithms are natural, so that divergences, entropies and margins are in nats. Sums are float64.
//!
//! - [`mod@score`]: each position of two sets of logits
//! - [`summary`]: many positions, with intervals; its parts are [`distribution`], [`agreement`], [`perplexity`] and
//!   [`profile`](mod@profile)
//! - [`bootstrap`]: intervals by resampling whole clusters (prompts or windows)
//! - [`wilson`]: an interval of a share
//! - [`permutation`]: whether two paired lanes differ
//! - [`power`]: the least effect that a run would have shown

pub mod agreement;
pub mod bootstrap;
pub mod distribution;
pub mod interval;
pub mod permutation;
pub mod perplexity;
pub mod position;
pub mod power;
pub mod profile;
pub mod quantile;
pub mod score;
pub mod summary;
pub mod wilson;

mod block;
mod clusters;
mod exp;
mod kernel;
mod row;
mod sum;
mod tail;
mod top;

pub use agreement::Agreement;
pub use bootstrap::{Bootstrap, Intervals};
pub use distribution::Distribution;
pub use interval::Interval;
pub use perplexity::{DeltaP, Perplexity};
pub use position::{Position, TrueToken};
pub use profile::{Profile, profile};
pub use score::{NonFinite, ScoreOptions, Scored, Side, StatsError, score};
pub use summary::{Summary, SummaryOptions};

#[cfg(test)]
mod tests;
