//! `residual + down(silu(gate(x)) · up(x))` in float64, from the packed numbers as they are stored.

use super::operands::Mlp;
use crate::fused_swiglu::reference::swiglu;
use crate::gated::project;

/// The results, row-major.
pub(super) fn mlp(of: &Mlp<'_>) -> Vec<f64> {
    let down = project(&swiglu(&of.gated), &of.down);
    of.residual.to_f64().iter().zip(&down).map(|(residual, down)| residual + down).collect()
}
