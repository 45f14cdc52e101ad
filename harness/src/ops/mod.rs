//! Single ops against the float64 reference.
//!
//! A case names an op, dtypes, generators and a grid of arguments; every combination is a [`Call`].
//! The op table is `mlx_parity_oracles::ops::OPS`; nothing here lists ops again.

mod call;
mod generate;
mod suite;
mod suites;

pub use self::{
    call::{Argument, ArgumentError, Call, Grid, OpCase},
    generate::{Generator, Source},
    suite::{LayoutRule, Suite, SuiteError, suite},
};
