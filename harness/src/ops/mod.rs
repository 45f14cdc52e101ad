//! Single ops against the float64 reference.
//!
//! A case names an op, dtypes, generators and a grid of arguments; every combination is a [`Call`].
//! The op table is `mlx_parity_oracles::ops::OPS`; nothing here lists ops again.

mod call;
mod fake;
mod generate;
mod judge;
mod mutant;
mod subject;
mod suite;
mod suites;
mod tolerances;

#[cfg(feature = "engine")]
pub use self::subject::Mlx;
pub use self::{
    call::{Argument, ArgumentError, Call, Grid, OpCase, seed_of},
    fake::Fake,
    generate::{Generator, Source},
    judge::{Verdict, judge},
    mutant::Mutant,
    subject::{Reply, Subject, logical},
    suite::{LayoutRule, Suite, SuiteError, suite},
    tolerances::{Bound, Need, Tolerances},
};
