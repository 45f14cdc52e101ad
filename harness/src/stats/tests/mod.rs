//! Closed forms, a plain float64 version, and simulations.

mod coverage;
mod naive;
mod score;
mod summary;
