//! `silu(x · gateᵀ) · (x · upᵀ)` in float64, from the packed numbers as they are stored.

use crate::gated::{Gated, project, silu};

/// The results, row-major.
pub(crate) fn swiglu(of: &Gated<'_>) -> Vec<f64> {
    let x = of.x.to_f64();
    let (gate, up) = (project(&x, &of.gate), project(&x, &of.up));
    gate.iter().zip(&up).map(|(&gate, &up)| silu(gate) * up).collect()
}
