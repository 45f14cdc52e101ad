//! Statistics of two paths that may differ: by how much, and how sure that is. Pure functions over host slices, with no
//! MLX, files or clocks.
//!
//! All logarithms are natural, so that divergences, entropies and margins are in nats. Sums are float64.
//!
//! - [`score`]: each position of two sets of logits
//! - [`summary`]: many positions, with intervals
//! - [`bootstrap`]: intervals by resampling whole clusters (prompts or windows)
//! - [`wilson`]: an interval of a share
//! - [`permutation`]: whether two paired lanes differ
//! - [`power`]: the least effect that a run would have shown

pub mod bootstrap;
pub mod interval;
pub mod permutation;
pub mod position;
pub mod power;
pub mod quantile;
pub mod score;
pub mod summary;
pub mod wilson;

pub use bootstrap::{Bootstrap, Intervals};
pub use interval::Interval;
pub use position::{Position, TrueToken};
pub use score::{NonFinite, ScoreOptions, Scored, Side, StatsError, score};
pub use summary::{Agreement, DeltaP, Distribution, Perplexity, Profile, Summary, SummaryOptions};
