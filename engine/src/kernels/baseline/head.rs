//! Cross entropy of a language model's head.

use mlx_rs::{Array, Dtype};

use super::Lent;
use crate::error::EngineError;
use crate::grad::vjp;
use crate::ops::{self, Affine, Axes};

/// The target that has no loss (`ignore_index` of torch's `cross_entropy`).
const IGNORED: f64 = -100.0;

/// Losses and logsumexps, f32 `[positions]`, of logits that are computed in the dtype of `hidden` and then cast.
pub(super) fn cce(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let (hidden, weight) = (of.array("hidden")?, of.maybe("weight")?);
    let logits = logits(of, &hidden, weight.as_ref())?;
    let sums = ops::logsumexp(&logits, Axes::Of(&[-1]), false)?;
    Ok(vec![losses(of, &logits)?, sums])
}

/// Gradients of the losses by `hidden`, and by a plain weight where they are wanted, by `mx.vjp`.
pub(super) fn cce_vjp(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let mut primals = vec![of.array("hidden")?];
    let weight = of.maybe("weight")?;
    if of.integer_or_zero("want_dweight") != 0 {
        primals.extend(weight.clone());
    }
    let forward = |a: &[Array]| {
        let logits = logits(of, &a[0], a.get(1).or(weight.as_ref()))?;
        Ok(vec![losses(of, &logits)?])
    };
    Ok(vjp(forward, &primals, &[of.array("cotangent")?])?.gradients)
}

/// `[positions, classes]` in f32.
fn logits(of: &Lent<'_>, hidden: &Array, weight: Option<&Array>) -> Result<Array, EngineError> {
    let logits = if let Some(weight) = weight {
        ops::matmul(hidden, &ops::swap_axes(weight, -1, -2)?)?
    } else {
        let part = |name: &str| of.array(name);
        let packing = Affine { bits: of.integer("bits")?, group_size: of.integer("group")? };
        let [w, scales, biases] =
            [part("weight_w")?, part("weight_scales")?, part("weight_biases")?];
        ops::quantized_matmul(hidden, &w, &scales, &biases, packing)?
    };
    ops::cast(&logits, Dtype::Float32)
}

fn losses(of: &Lent<'_>, logits: &Array) -> Result<Array, EngineError> {
    let targets = of.array("targets")?;
    let ignored = ops::equal(&targets, &ops::scalar(IGNORED, Dtype::Int32)?)?;
    let classes = ops::maximum(&targets, &ops::scalar(0.0, Dtype::Int32)?)?;
    let losses = ops::cross_entropy(logits, &classes, 0.0)?;
    ops::select(&ignored, &ops::scalar(0.0, Dtype::Float32)?, &losses)
}
