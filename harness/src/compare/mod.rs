//! Comparing tensors: pure functions over host bytes, with no MLX, files or clocks.
//!
//! Class comes first (NaN, infinity, sign of zero), the metric after it, and every bound is `!(err <= bound)`, so
//! that a NaN fails.
//!
//! - [`bits`]: bit-exact, and how it differs where it does
//! - [`ulp`]: the distance in units in the last place
//! - [`error`]: error against a float64 reference
//! - [`tolerance`]: a bound in ULP of the output dtype, scaled by the op's condition
//! - [`information`]: whether a golden holds enough to be worth comparing with

pub mod bits;
pub mod class;
pub mod error;
pub mod histogram;
pub mod information;
pub mod moments;
pub mod tally;
pub mod tolerance;
pub mod ulp;

mod block;
mod decimal;
pub(crate) mod vector;

pub use bits::{BitReport, bit_exact};
pub use block::differing_elements;
pub use class::Class;
pub use error::{ErrorStats, error_stats};
pub use histogram::Histogram;
pub use information::{Refusal, Strength};
pub use moments::{Allowance, Moments};
pub use tally::Tally;
pub use tolerance::{ToleranceReport, Zeros, check_tolerance};
pub use ulp::{Distance, ulp_distance};
