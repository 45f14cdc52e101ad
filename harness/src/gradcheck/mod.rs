//! Gradients beside finite differences in float64, with known power.
//!
//! [`check`] takes a function ([`Differentiable`]) at a point and compares the gradients that somebody
//! claims for it with differences of its float64 values: along several directions of random signs, which
//! see a wrong entry wherever it is, and at single entries, which say where. Everything but the function
//! itself is pure.

mod bound;
mod case;
mod check;
pub mod composite;
mod cotangent;
mod difference;
mod direction;
pub mod kernel;
mod kink;
mod properties;
mod report;
mod second;
mod subject;
#[cfg(feature = "engine")]
pub mod traced;

pub use self::{
    case::{KernelTrials, Of, Point, VjpCase},
    check::{Settings, check},
    composite::{COMPOSITES, Composite, composite},
    cotangent::Cotangent,
    difference::{Differences, Order, Plateau},
    direction::Direction,
    report::GradientReport,
    subject::{Differentiable, Form, GradError},
};
