//! `nn.losses.cross_entropy`.

use mlx_rs::{Array, Device, DeviceType};

use super::{
    Axes, add, cast, expand_dims, logsumexp, max, mean, multiply, negative, raw, refused, scalar,
    squeeze, subtract, take_along_axis,
};
use crate::error::{EngineError, op};

/// `nn.losses.cross_entropy(logits, targets, label_smoothing=..)`: the loss in nats of each row of
/// logits `[.., classes]` for class indices `[..]`, in the logits' dtype. On CUDA and without
/// smoothing it is `mx.fast.cross_entropy`, otherwise the composition of `mlx/nn/losses.py`. Targets
/// are not checked against the number of classes.
///
/// # Errors
/// [`EngineError::Op`] for smoothing outside `[0, 1)` or shapes that do not fit, and where MLX throws.
pub fn cross_entropy(
    logits: &Array,
    targets: &Array,
    label_smoothing: f64,
) -> Result<Array, EngineError> {
    if !(0.0..1.0).contains(&label_smoothing) {
        let found = format!("label smoothing {label_smoothing}");
        return Err(refused("cross_entropy", &found, "one in [0, 1)"));
    }
    let rows = logits.shape().split_last().map_or(&[][..], |(_, rows)| rows);
    if logits.ndim() == 0 || targets.shape() != rows {
        let found = format!("targets of shape {:?}", targets.shape());
        let wanted = format!("that of logits {:?} less the last axis", logits.shape());
        return Err(refused("cross_entropy", &found, &wanted));
    }
    if label_smoothing == 0.0 && on_cuda()? {
        return fused(logits, targets);
    }
    composed(logits, targets, label_smoothing)
}

fn composed(logits: &Array, targets: &Array, label_smoothing: f64) -> Result<Array, EngineError> {
    let last = Axes::Of(&[-1]);
    let top = op("stop_gradient", mlx_rs::stop_gradient(max(logits, last, true)?))?;
    let logits = subtract(logits, &top)?;
    let score = squeeze(&take_along_axis(&logits, &expand_dims(targets, -1)?, -1)?, -1)?;
    let total = logsumexp(&logits, last, false)?;
    if label_smoothing == 0.0 {
        return subtract(&total, &score);
    }
    let number = |value: f64| scalar(value, logits.dtype());
    let kept = multiply(&number(1.0 - label_smoothing)?, &score)?;
    let spread = negative(&mean(&logits, last, false)?)?;
    let spread = multiply(&spread, &number(label_smoothing)?)?;
    add(&subtract(&total, &kept)?, &spread)
}

fn fused(logits: &Array, targets: &Array) -> Result<Array, EngineError> {
    let loss = raw::array("fast.cross_entropy", |result, stream| {
        // SAFETY: both arrays outlive the call.
        unsafe {
            mlx_sys::mlx_fast_cross_entropy(result, logits.as_ptr(), targets.as_ptr(), stream)
        }
    })?;
    cast(&loss, logits.dtype())
}

/// Whether the default device is one of CUDA's.
fn on_cuda() -> Result<bool, EngineError> {
    let device = op("default_device", Device::try_default())?;
    if !matches!(op("device_type", device.get_type())?, DeviceType::Gpu) {
        return Ok(false);
    }
    let mut available = false;
    raw::status("cuda.is_available", |_| {
        // SAFETY: writes one boolean.
        unsafe { mlx_sys::mlx_cuda_is_available(&raw mut available) }
    })?;
    Ok(available)
}
