//! Second order: the gradient of tangent · gradient, beside second differences in float64.
//!
//! Along a direction δ the second derivative of F = Σ cotangent · output is δᵀHδ. With δ as the tangent
//! the subject's second gradient is Hδ, whose product with δ is the same number.

use mlx_parity_tensor::HostTensor;

use super::{
    Cotangent, Differences, Differentiable, Direction, GradError, GradientReport, Order, Settings,
    bound,
    check::{Compared, Tally},
    cotangent,
};

/// Second differences in float64 resolve no more than this part of their terms.
const RESOLVED: f64 = 1e-6;

/// Compares along random signs, one operand at a time.
pub(super) fn check(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    settings: &Settings,
) -> Result<GradientReport, GradError> {
    let forms = subject.outputs();
    let mut source = bound::source(settings.seed, usize::MAX - 2);
    let weights = Cotangent::Random.values(forms, &mut source);
    let cotangents = cotangent::tensors(forms, &weights)?;
    let mut tally = Tally::default();
    for (slot, &operand) in subject.wrt().iter().enumerate() {
        let own = &operands[operand];
        let trial = Direction::signs(&mut source, own.len());
        let differences =
            Differences::new(subject, operands, operand, (&trial, &weights), RESOLVED)?;
        for number in 0..settings.projections {
            let direction = Direction::signs(&mut source, own.len());
            let tangents = tangents(subject, operands, slot, &direction)?;
            let found = subject.second(operands, &cotangents, &tangents)?;
            let found = direction.dot(&found[slot].to_f64());
            let (want, terms) = curvature(&differences, &direction, &weights)?;
            let units = 4.0 * settings.units * bound::unit(own.dtype());
            let bound = (units + RESOLVED) * terms;
            let error = (found - want).abs();
            tally.add(&Compared { error, bound, order: Order::FivePoint }, || {
                format!("second order, operand {operand}, projection {number}")
            });
        }
    }
    let mut report = tally.finish();
    report.held = report.over == 0;
    report.properties.push("second order".to_owned());
    Ok(report)
}

/// The direction for one operand, nothing for the others.
fn tangents(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    slot: usize,
    direction: &Direction,
) -> Result<Vec<HostTensor>, GradError> {
    let mut made = Vec::new();
    for (at, &operand) in subject.wrt().iter().enumerate() {
        let own = &operands[operand];
        let none = vec![0.0; own.len()];
        let values = if at == slot { direction.moved(&none, 1.0) } else { none };
        made.push(HostTensor::from_f64_as(own.dtype(), own.shape(), &values)?);
    }
    Ok(made)
}

/// δᵀHδ by `(4·d(h) − d(2h)) / 3`, Richardson's combination of second differences at h and 2h, and the
/// size of its terms √Σⱼ(cⱼ·fⱼ″)².
fn curvature(
    differences: &Differences<'_>,
    direction: &Direction,
    weights: &[f64],
) -> Result<(f64, f64), GradError> {
    let h = differences.scale() / 256.0;
    let bend = |h: f64| -> Result<Vec<f64>, GradError> {
        let (up, down) = (differences.at(direction, h)?, differences.at(direction, -h)?);
        let base = differences.base();
        Ok((0..base.len()).map(|j| (up[j] - 2.0 * base[j] + down[j]) / (h * h)).collect())
    };
    let (fine, coarse) = (bend(h)?, bend(2.0 * h)?);
    let bends: Vec<f64> = fine.iter().zip(&coarse).map(|(f, c)| (4.0 * f - c) / 3.0).collect();
    let terms = super::difference::norm(weights, bends.iter().copied());
    let slopes = differences.along(direction, Order::Central)?;
    let slopes = super::difference::norm(weights, slopes.into_iter()) / differences.scale();
    Ok((bound::weighed(weights, &bends), terms + slopes))
}
