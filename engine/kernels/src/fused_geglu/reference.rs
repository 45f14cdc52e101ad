//! Gated gelu and its gradients in float64.

use super::Pair;

/// `nn.gelu_approx`, the approximation by tanh of Hendrycks and Gimpel (2016), with
/// `(1 + tanh u) / 2 = 1 / (1 + exp(-2 u))`.
pub(crate) fn gelu(x: f64) -> f64 {
    x * share(x)
}

/// Its derivative.
pub(crate) fn slope_of_gelu(x: f64) -> f64 {
    let s = share(x);
    s + 2.0 * x * s * (1.0 - s) * (SLOPE * (1.0 + 3.0 * 0.044_715 * x * x))
}

/// sqrt(2 / pi).
const SLOPE: f64 = 0.797_884_560_802_865_4;

/// The part of x that passes.
fn share(x: f64) -> f64 {
    1.0 / (1.0 + (-2.0 * SLOPE * (x + 0.044_715 * x * x * x)).exp())
}

/// `gelu(gate) * up`.
pub(crate) fn geglu(of: Pair<'_>) -> Vec<f64> {
    of.gate.to_f64().into_iter().zip(of.up.to_f64()).map(|(gate, up)| gelu(gate) * up).collect()
}
