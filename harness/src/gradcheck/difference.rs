//! Finite differences in float64: three orders, and the step at which each is most certain.

use mlx_parity_tensor::HostTensor;

use super::{Differentiable, Direction, GradError};

/// A formula, in the order they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// `(f(x+h) − f(x)) / h`: error of order h.
    Forward,
    /// `(f(x+h) − f(x−h)) / 2h`: error of order h².
    Central,
    /// `(16·central(h) − central(4h)) / 15`, of f at x, x±h and x±4h: error of order h⁴ (Richardson).
    FivePoint,
}

impl Order {
    /// Every order, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Central, Self::FivePoint];
}

/// Steps tried: the operand's scale times 2⁻³, 2⁻⁵, …, 2⁻³¹.
const STEPS: std::ops::RangeInclusive<i32> = 1..=15;

/// Where a formula changes least from one step to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plateau {
    /// The step.
    pub step: f64,
    /// Difference to the neighbouring steps' results over the size of the derivative. Not a number where
    /// no step has a result.
    pub spread: f64,
}

/// A function at a point, differentiated numerically.
pub struct Differences<'a> {
    subject: &'a dyn Differentiable,
    /// The operands, those with a gradient in float64.
    operands: Vec<HostTensor>,
    base: Vec<f64>,
    operand: usize,
    x: Vec<f64>,
    scale: f64,
    plateaus: [Plateau; 3],
}

impl<'a> Differences<'a> {
    /// The function at `operands`, to be differentiated by the operand at `operand`; steps are chosen on
    /// `trial`, with outputs weighed by `weights`; `wanted` is what relative uncertainty would do.
    ///
    /// # Errors
    /// What the function says.
    pub fn new(
        subject: &'a dyn Differentiable,
        operands: &[HostTensor],
        operand: usize,
        (trial, weights): (&Direction, &[f64]),
        wanted: f64,
    ) -> Result<Self, GradError> {
        let operands = widened(subject, operands)?;
        let base = subject.value(&operands)?;
        let x = operands[operand].to_f64();
        let scale = scale(&x);
        let nowhere = Plateau { step: f64::NAN, spread: f64::NAN };
        let plateaus = [nowhere; 3];
        let mut made = Self { subject, operands, base, operand, x, scale, plateaus };
        made.plateaus = made.sweep(trial, weights, wanted)?;
        Ok(made)
    }

    /// Where the formula is most certain.
    pub fn plateau(&self, order: Order) -> Plateau {
        self.plateaus[order as usize]
    }

    /// What single differences of this operand are scaled by: a power of two near its root mean square.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The outputs at the point.
    pub fn base(&self) -> &[f64] {
        &self.base
    }

    /// The outputs after a step of `h`.
    ///
    /// # Errors
    /// What the function says.
    pub fn at(&self, direction: &Direction, h: f64) -> Result<Vec<f64>, GradError> {
        let mut operands = self.operands.clone();
        let shape = operands[self.operand].shape().to_vec();
        operands[self.operand] = HostTensor::from_f64(shape, &direction.moved(&self.x, h))?;
        self.subject.value(&operands)
    }

    /// The derivative of every output along a direction, at the formula's own step.
    ///
    /// # Errors
    /// What the function says.
    pub fn along(&self, direction: &Direction, order: Order) -> Result<Vec<f64>, GradError> {
        let h = self.plateau(order).step;
        match order {
            Order::Forward => Ok(slope(&self.at(direction, h)?, &self.base, h)),
            Order::Central => self.central(direction, h),
            Order::FivePoint => {
                Ok(richardson(&self.central(direction, h)?, &self.central(direction, 4.0 * h)?))
            }
        }
    }

    fn central(&self, direction: &Direction, h: f64) -> Result<Vec<f64>, GradError> {
        Ok(slope(&self.at(direction, h)?, &self.at(direction, -h)?, 2.0 * h))
    }

    /// Every formula at every step, and the plateau of each. Cheaper formulas take the smallest step that is
    /// certain enough, so that they cross as few kinks as may be; five-point differences the most certain one.
    fn sweep(
        &self,
        trial: &Direction,
        weights: &[f64],
        wanted: f64,
    ) -> Result<[Plateau; 3], GradError> {
        let mut found: [Vec<(f64, Vec<f64>)>; 3] = Default::default();
        let mut wider: Option<Vec<f64>> = None;
        for exponent in STEPS {
            let h = self.scale * 2_f64.powi(-(2 * exponent + 1));
            if h < self.subject.finest() {
                break;
            }
            let (up, down) = (self.at(trial, h)?, self.at(trial, -h)?);
            let central = slope(&up, &down, 2.0 * h);
            if let Some(wider) = &wider {
                found[2].push((h, richardson(&central, wider)));
            }
            found[0].push((h, slope(&up, &self.base, h)));
            found[1].push((h, central.clone()));
            wider = Some(central);
        }
        let [forward, central, five_point] = found;
        let noise = f64::EPSILON * norm(weights, self.base.iter().copied());
        let noise = if noise.is_finite() { noise } else { 0.0 };
        Ok([
            plateau(&forward, weights, noise, wanted / 16.0),
            plateau(&central, weights, noise, wanted / 256.0),
            plateau(&five_point, weights, noise, 0.0),
        ])
    }
}

/// The operands with those that have a gradient in float64.
fn widened(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
) -> Result<Vec<HostTensor>, GradError> {
    let mut wide = operands.to_vec();
    for &at in subject.wrt() {
        wide[at] = HostTensor::from_f64(operands[at].shape(), &operands[at].to_f64())?;
    }
    Ok(wide)
}

/// The power of two below the root mean square of what is finite; 1 where that is nothing.
fn scale(x: &[f64]) -> f64 {
    let finite = x.iter().filter(|v| v.is_finite());
    let (count, sum) = finite.fold((0_usize, 0.0), |(n, sum), v| (n + 1, sum + v * v));
    let rms = (sum / count.max(1) as f64).sqrt();
    if rms > 0.0 && rms.is_finite() { rms.log2().floor().exp2() } else { 1.0 }
}

/// `(a − b) / width`; an infinity that stays one has no slope.
fn slope(a: &[f64], b: &[f64], width: f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| if a == b { 0.0 } else { (a - b) / width }).collect()
}

fn richardson(fine: &[f64], coarse: &[f64]) -> Vec<f64> {
    fine.iter().zip(coarse).map(|(fine, coarse)| (16.0 * fine - coarse) / 15.0).collect()
}

/// √Σ(weight·value)².
pub(super) fn norm(weights: &[f64], values: impl Iterator<Item = f64>) -> f64 {
    weights
        .iter()
        .zip(values)
        .map(|(w, v)| if *w == 0.0 { 0.0 } else { (w * v).powi(2) })
        .sum::<f64>()
        .sqrt()
}

/// The smallest of the steps whose results differ from both neighbours' by no more than `enough` of their size,
/// or nearly as little as any. Where small steps change the outputs by a few of their last digits, neighbours agree
/// by chance: `noise`, what rounding may change the outputs by, over the step counts as a difference too.
fn plateau(steps: &[(f64, Vec<f64>)], weights: &[f64], noise: f64, enough: f64) -> Plateau {
    let between = |a: usize, b: usize| {
        let pairs = steps[a].1.iter().zip(&steps[b].1);
        norm(weights, pairs.map(|(a, b)| a - b))
    };
    let spreads: Vec<(usize, f64)> = (1..steps.len().saturating_sub(1))
        .map(|at| (at, between(at, at - 1).max(between(at, at + 1)) + noise / steps[at].0))
        // `max` drops NaN: both neighbours must have given a number.
        .filter(|(at, _)| between(*at, at - 1).is_finite() && between(*at, at + 1).is_finite())
        .collect();
    let Some(least) = spreads.iter().map(|(_, spread)| *spread).min_by(f64::total_cmp) else {
        return Plateau { step: f64::NAN, spread: f64::NAN };
    };
    let size = |at: usize| norm(weights, steps[at].1.iter().copied());
    let flat = |(at, spread): &&(usize, f64)| *spread <= (enough * size(*at)).max(2.0 * least);
    let Some(&(at, spread)) = spreads.iter().rev().find(flat) else {
        return Plateau { step: f64::NAN, spread: f64::NAN };
    };
    // A slope of nothing at all is certain.
    let spread = if size(at) == 0.0 { 0.0 } else { spread / size(at) };
    Plateau { step: steps[at].0, spread }
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::{Dtype, Layout};

    use super::*;
    use crate::gradcheck::Form;

    struct Of(fn(f64) -> f64, Vec<Form>);

    impl Of {
        fn new(f: fn(f64) -> f64) -> Self {
            Self(f, vec![Form { dtype: Dtype::F64, shape: vec![1] }])
        }
    }

    impl Differentiable for Of {
        fn wrt(&self) -> &[usize] {
            &[0]
        }
        fn outputs(&self) -> &[Form] {
            &self.1
        }
        fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
            Ok(operands[0].to_f64().into_iter().map(self.0).collect())
        }
        fn gradients(
            &self,
            _: &[HostTensor],
            _: &[HostTensor],
            _: Layout,
        ) -> Result<Vec<HostTensor>, GradError> {
            Err(GradError::Subject("not asked".to_owned()))
        }
    }

    fn derivative(f: fn(f64) -> f64, x: f64, order: Order) -> (f64, Plateau) {
        let (of, x) = (Of::new(f), HostTensor::from_f64([1], &[x]).unwrap());
        let along = Direction::Entry(0);
        let differences = Differences::new(&of, &[x], 0, (&along, &[1.0]), 0.0).unwrap();
        (differences.along(&along, order).unwrap()[0], differences.plateau(order))
    }

    #[test]
    fn each_order_is_more_certain_than_the_one_before_and_says_so() {
        for (order, within) in
            [(Order::Forward, 1e-6), (Order::Central, 1e-9), (Order::FivePoint, 1e-11)]
        {
            let (found, plateau) = derivative(f64::sin, 1.0, order);
            let error = (found - 1.0_f64.cos()).abs() / 1.0_f64.cos();
            assert!(error <= within, "{order:?}: {error}");
            assert!(error <= 3.0 * plateau.spread + 1e-13, "{order:?}: {error} of {plateau:?}");
            assert!(plateau.spread <= within, "{order:?}: {plateau:?}");
        }
    }

    #[test]
    fn steps_out_of_the_domain_are_no_plateau() {
        let (found, plateau) = derivative(f64::ln, 0.0626, Order::FivePoint);
        assert!((found * 0.0626 - 1.0).abs() < 1e-8, "{found} {plateau:?}");
        let (_, nowhere) = derivative(|_| f64::NAN, 1.0, Order::Central);
        assert!(nowhere.spread.is_nan());
    }

    #[test]
    fn noise_moves_the_step_and_shows_in_the_spread() {
        let noisy = |x: f64| f64::from(x.sin() as f32);
        let (_, plateau) = derivative(noisy, 1.0, Order::Central);
        let (_, clean) = derivative(f64::sin, 1.0, Order::Central);
        assert!(plateau.step > 8.0 * clean.step, "{plateau:?} {clean:?}");
        assert!(plateau.spread > 1e-6, "{plateau:?}");
    }
}
