//! Feed-forward networks.

use mlx_rs::Array;

use super::Lent;
use crate::error::EngineError;
use crate::grad::vjp;
use crate::ops::{self, Affine};

/// `silu(x gate^T) * (x up^T)` on affine-quantized matrices: `MLP` of `mlx_lm/models/llama.py` up to its last
/// projection.
pub(super) fn swiglu(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let x = of.array("x")?;
    Ok(vec![gated(of, &x)?])
}

/// The whole of that network, and the residual.
pub(super) fn mlp(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let x = of.array("x")?;
    let down = projected(of, &gated(of, &x)?, "down")?;
    Ok(vec![ops::add(&of.array("residual")?, &down)?])
}

/// `gelu_approx(gate) * up`.
pub(super) fn geglu(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    Ok(vec![ops::multiply(&ops::gelu_approx(&of.array("gate")?)?, &of.array("up")?)?])
}

fn gated(of: &Lent<'_>, x: &Array) -> Result<Array, EngineError> {
    let (gate, up) = (projected(of, x, "gate")?, projected(of, x, "up")?);
    ops::multiply(&ops::silu(&gate)?, &up)
}

/// x times the transposed matrix `NAME_w`, `NAME_scales`, `NAME_biases`.
pub(super) fn projected(of: &Lent<'_>, x: &Array, name: &str) -> Result<Array, EngineError> {
    let part = |suffix: &str| of.array(&format!("{name}_{suffix}"));
    let packing = Affine {
        bits: of.integer(&format!("{name}_bits"))?,
        group_size: of.integer(&format!("{name}_group"))?,
    };
    ops::quantized_matmul(x, &part("w")?, &part("scales")?, &part("biases")?, packing)
}

/// Gradients of `gelu_approx(gate) * up` by both, by `mx.vjp`.
pub(super) fn geglu_vjp(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let forward = |a: &[Array]| Ok(vec![ops::multiply(&ops::gelu_approx(&a[0])?, &a[1])?]);
    let primals = [of.array("gate")?, of.array("up")?];
    Ok(vjp(forward, &primals, &[of.array("cotangent")?])?.gradients)
}
