//! Points where slopes jump: ties of a maximum, zero of a rectifier, the edge of a clip.
//!
//! Under a cotangent that makes Σ cotangent · output convex (or concave), every subgradient g satisfies
//! −f′(x; −δ) ≤ g·δ ≤ f′(x; δ) (or the other way round) along every direction δ. So a projection of the
//! gradient must lie between the two one-sided slopes; away from the kink they are one. Both sides of the
//! kink are then checked as any other point.

use mlx_parity_tensor::HostTensor;

use super::{
    Differences, Differentiable, Direction, GradError, GradientReport, Order, Settings, bound,
    check::{Compared, Tally, backwards, values},
    direction,
};

/// One-sided slopes are taken this small a part of the operand's scale away.
const STEP: f64 = 1.0 / (1 << 20) as f64;
/// The sides of a kink are looked at this far away, or up to twice as far.
const ASIDE: f64 = 1.0 / 16.0;

/// Checks at the kink, then on both of its sides.
pub(super) fn check(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    settings: &Settings,
) -> Result<GradientReport, GradError> {
    let mut report = between(subject, operands, settings)?;
    let smooth = Settings { kinks: Vec::new(), ..settings.clone() };
    for side in [1.0, -1.0] {
        let mut beside = operands.to_vec();
        for &at in subject.wrt() {
            beside[at] = aside(&operands[at], side)?;
        }
        report = report.joined(values(subject, &beside, &smooth)?);
    }
    report.properties.push("kink".to_owned());
    Ok(report)
}

/// Every entry moved to one side, each by another distance, so that ties part.
fn aside(operand: &HostTensor, side: f64) -> Result<HostTensor, GradError> {
    let moved: Vec<f64> = operand
        .to_f64()
        .into_iter()
        .enumerate()
        .map(|(i, v)| v + side * ASIDE * (1.0 + ((i * 29) % 61) as f64 / 61.0))
        .collect();
    Ok(HostTensor::from_f64_as(operand.dtype(), operand.shape(), &moved)?)
}

fn between(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    settings: &Settings,
) -> Result<GradientReport, GradError> {
    let backwards = backwards(subject, operands, settings, &settings.kinks)?;
    let mut tally = Tally::default();
    for (slot, &operand) in subject.wrt().iter().enumerate() {
        let own = &operands[operand];
        let mut source = bound::source(settings.seed, operand);
        let mut directions = vec![Direction::Signs(vec![true; own.len()])];
        directions
            .extend((0..settings.projections).map(|_| Direction::signs(&mut source, own.len())));
        let chosen = direction::entries(&mut source, own.shape(), settings.entries);
        directions.extend(chosen.into_iter().map(Direction::Entry));
        let first = &backwards[0].values;
        let trial = (&directions[0], first.as_slice());
        let differences = Differences::new(subject, operands, operand, trial, STEP)?;
        let h = differences.scale() * STEP;
        let allowed = settings.units * bound::unit(own.dtype()) + STEP;
        for direction in directions {
            let sides = [differences.at(&direction, h)?, differences.at(&direction, -h)?];
            for back in &backwards {
                let base = bound::weighed(&back.values, differences.base());
                let [up, down] = [0, 1].map(|i| bound::weighed(&back.values, &sides[i]));
                let (right, left) = ((up - base) / h, (base - down) / h);
                let found = direction.dot(&back.gradients[slot].to_f64());
                let error = outside(found, right, left);
                let bound = allowed * (right.abs() + left.abs() + 1.0);
                tally.add(&Compared { error, bound, order: Order::Forward }, || {
                    format!("operand {operand} at the kink, {} cotangent", back.kind.name())
                });
            }
        }
    }
    let mut report = tally.finish();
    report.held = report.over == 0;
    Ok(report)
}

/// How far a slope lies outside the two one-sided ones.
fn outside(found: f64, right: f64, left: f64) -> f64 {
    if found.is_nan() || right.is_nan() || left.is_nan() {
        return f64::NAN;
    }
    let (low, high) = if right < left { (right, left) } else { (left, right) };
    (low - found).max(found - high).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_between_both_sides_is_right_and_nan_never_is() {
        assert_eq!(outside(0.5, 1.0, 0.0), 0.0);
        assert_eq!(outside(0.5, 0.0, 1.0), 0.0);
        assert_eq!(outside(1.5, 1.0, 0.0), 0.5);
        assert_eq!(outside(-0.25, 1.0, 0.0), 0.25);
        assert!(outside(f64::NAN, 1.0, 0.0).is_nan());
    }
}
