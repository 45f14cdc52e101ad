//! Gated gelu and its gradients in float64.

use super::Pair;

/// `nn.gelu_approx`: the approximation by tanh of Hendrycks and Gimpel (2016).
pub(crate) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + bend(x))
}

/// Its derivative.
pub(crate) fn slope_of_gelu(x: f64) -> f64 {
    let t = bend(x);
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044_715 * x * x);
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
}

fn bend(x: f64) -> f64 {
    ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh()
}

/// `gelu(gate) * up`.
pub(crate) fn geglu(of: Pair<'_>) -> Vec<f64> {
    of.gate.to_f64().into_iter().zip(of.up.to_f64()).map(|(gate, up)| gelu(gate) * up).collect()
}
