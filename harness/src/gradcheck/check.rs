//! One function at one point: its gradients beside finite differences, then their properties.

use mlx_parity_tensor::{HostTensor, Layout};

use super::{
    Cotangent, Differences, Differentiable, Direction, GradError, GradientReport, Order, bound,
    cotangent, direction, kink, properties, report::ratio, second,
};

/// What a check is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Seed of directions and cotangents.
    pub seed: u64,
    /// Units of the gradient's dtype at its condition that an error may be.
    pub units: f64,
    /// Projections on random signs for each operand.
    pub projections: usize,
    /// Single entries for each operand.
    pub entries: usize,
    /// The cotangents.
    pub cotangents: Vec<Cotangent>,
    /// Repeat the backward with operands and cotangents in other layouts.
    pub views: bool,
    /// Operands whose leading axis is the batch, where there is one: outputs have it too.
    pub batched: Vec<usize>,
    /// The point is one where slopes jump; the cotangents under which the function is convex or concave.
    pub kinks: Vec<Cotangent>,
    /// The second order is claimed.
    pub second: bool,
}

impl Settings {
    /// A whole check with the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            units: 4.0,
            projections: 4,
            entries: 48,
            cotangents: vec![
                Cotangent::Random,
                Cotangent::Ramp,
                Cotangent::Last,
                Cotangent::Alternating,
            ],
            views: false,
            batched: Vec::new(),
            kinks: Vec::new(),
            second: false,
        }
    }
}

/// Cotangents with the gradients under them.
pub(super) struct Backward {
    pub kind: Cotangent,
    /// Values for every output, one behind the other.
    pub values: Vec<f64>,
    /// The gradients, as they came.
    pub gradients: Vec<HostTensor>,
}

/// Checks the gradients of a function.
///
/// # Errors
/// [`GradError`] where the subject refuses, or no finite difference is certain enough.
pub fn check(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    settings: &Settings,
) -> Result<GradientReport, GradError> {
    if !settings.kinks.is_empty() {
        return kink::check(subject, operands, settings);
    }
    let mut report = values(subject, operands, settings)?;
    if settings.second {
        report = report.joined(second::check(subject, operands, settings)?);
    }
    Ok(report)
}

/// Comparisons and properties at a point where the function is smooth.
pub(super) fn values(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    settings: &Settings,
) -> Result<GradientReport, GradError> {
    let backwards = backwards(subject, operands, settings, &settings.cotangents)?;
    let mut tally = Tally::default();
    let mut conditions = Vec::new();
    for (slot, &operand) in subject.wrt().iter().enumerate() {
        if let Some(failure) =
            properties::form(operand, &operands[operand], &backwards[0].gradients, slot)
        {
            tally.report.failures.push(failure);
            continue;
        }
        let case = Slot { subject, operands, settings, at: slot, operand };
        conditions.push(case.compare(&backwards, &mut tally)?);
    }
    let mut report = tally.finish();
    if report.failures.is_empty() {
        let scope = properties::Scope { subject, operands, settings, conditions: &conditions };
        properties::check(&scope, &backwards, &mut report)?;
    }
    report.held = report.over == 0 && report.failures.is_empty();
    Ok(report)
}

/// The gradients under each kind of cotangent.
pub(super) fn backwards(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    settings: &Settings,
    kinds: &[Cotangent],
) -> Result<Vec<Backward>, GradError> {
    let forms = subject.outputs();
    let mut source = bound::source(settings.seed, usize::MAX - 1);
    let mut made = Vec::new();
    for &kind in kinds {
        let values = kind.values(forms, &mut source);
        let cotangents = cotangent::tensors(forms, &values)?;
        let gradients = subject.gradients(operands, &cotangents, Layout::Contiguous)?;
        made.push(Backward { kind, values, gradients });
    }
    if made.is_empty() {
        return Err(GradError::Subject("no cotangent is asked for".to_owned()));
    }
    Ok(made)
}

/// The gradient with respect to one operand.
struct Slot<'a> {
    subject: &'a dyn Differentiable,
    operands: &'a [HostTensor],
    settings: &'a Settings,
    at: usize,
    operand: usize,
}

/// The condition of an operand's gradient under each cotangent, for comparisons of whole gradients.
pub(super) type Conditions = Vec<f64>;

impl Slot<'_> {
    fn compare(&self, backwards: &[Backward], tally: &mut Tally) -> Result<Conditions, GradError> {
        let Self { subject, operands, settings, at: slot, operand } = *self;
        let own = &operands[operand];
        let mut source = bound::source(settings.seed, operand);
        let projections: Vec<_> = (0..settings.projections.max(1))
            .map(|_| Direction::signs(&mut source, own.len()))
            .collect();
        let first = &backwards[0].values;
        let allowed = settings.units * bound::unit(own.dtype());
        let trial = (&projections[0], first.as_slice());
        let differences = Differences::new(subject, operands, operand, trial, allowed)?;
        let start = first_order(&differences, allowed, operand)?;
        tally.uncertain(&differences, start);

        let mut lines = Vec::new();
        for projection in projections {
            lines.push(Line::new(&differences, projection, start)?);
        }
        let along: Vec<&[f64]> = lines.iter().map(Line::first).collect();
        let squares = bound::row_squares(&along);
        let conditions: Vec<f64> =
            backwards.iter().map(|back| bound::of_projection(&back.values, &squares)).collect();
        let gradients: Vec<Vec<f64>> =
            backwards.iter().map(|back| back.gradients[slot].to_f64()).collect();
        let mut power = f64::INFINITY;
        for (number, line) in lines.iter_mut().enumerate() {
            for (at, back) in backwards.iter().enumerate() {
                let compared =
                    line.compare(&back.values, &gradients[at], allowed, conditions[at])?;
                if at == 0 {
                    power = power.min(compared.bound + compared.error);
                }
                tally.add(&compared, || {
                    format!(
                        "operand {operand}, projection {number}, {} cotangent",
                        back.kind.name()
                    )
                });
            }
        }
        tally.power(power, &gradients[0]);
        for at in direction::entries(&mut source, own.shape(), settings.entries) {
            let mut line = Line::new(&differences, Direction::Entry(at), start)?;
            let dead = line.is_dead()?;
            for (number, back) in backwards.iter().enumerate() {
                let place = || {
                    format!("operand {operand}{:?}, {} cotangent", own.coords(at), back.kind.name())
                };
                if dead && gradients[number][at] != 0.0 {
                    let (found, place) = (gradients[number][at], place());
                    tally
                        .report
                        .failures
                        .push(format!("no output depends on {place}: its gradient is {found}"));
                    continue;
                }
                let condition =
                    bound::of_entry(&back.values, line.first(), conditions[number], own.len());
                let compared =
                    line.compare(&back.values, &gradients[number], allowed, condition)?;
                tally.add(&compared, place);
            }
        }
        Ok(conditions.into_iter().map(|condition| allowed * condition).collect())
    }
}

/// The cheapest formula that is four times as certain as the bound is wide; where none is, the most
/// certain one.
fn first_order(
    differences: &Differences<'_>,
    allowed: f64,
    operand: usize,
) -> Result<Order, GradError> {
    let spread = |order: &Order| differences.plateau(*order).spread;
    if let Some(order) = Order::ALL.into_iter().find(|order| spread(order) <= allowed / 4.0) {
        return Ok(order);
    }
    let known = Order::ALL.into_iter().filter(|order| spread(order).is_finite());
    let best = known.min_by(|a, b| spread(a).total_cmp(&spread(b)));
    let found = best.as_ref().map_or(f64::NAN, spread);
    match best {
        Some(order) if found <= allowed => Ok(order),
        _ => Err(GradError::NoPlateau { operand, found, wanted: allowed }),
    }
}

/// Derivatives along one direction, each order computed once and only where it is needed.
struct Line<'a> {
    differences: &'a Differences<'a>,
    direction: Direction,
    known: Vec<(Order, Vec<f64>)>,
}

/// One comparison.
pub(super) struct Compared {
    pub error: f64,
    pub bound: f64,
    pub order: Order,
}

impl<'a> Line<'a> {
    fn new(
        differences: &'a Differences<'a>,
        direction: Direction,
        start: Order,
    ) -> Result<Self, GradError> {
        let first = differences.along(&direction, start)?;
        Ok(Self { differences, direction, known: vec![(start, first)] })
    }

    fn first(&self) -> &[f64] {
        &self.known[0].1
    }

    /// Whether no output changes at all along the direction, for small steps and for a large one.
    fn is_dead(&self) -> Result<bool, GradError> {
        if self.first().iter().any(|d| *d != 0.0) {
            return Ok(false);
        }
        let after = self.differences.at(&self.direction, self.differences.scale())?;
        Ok(after.iter().zip(self.differences.base()).all(|(a, b)| a.to_bits() == b.to_bits()))
    }

    /// Compares under one cotangent, with the next order wherever the last one disagrees.
    fn compare(
        &mut self,
        cotangent: &[f64],
        gradient: &[f64],
        allowed: f64,
        condition: f64,
    ) -> Result<Compared, GradError> {
        let found = self.direction.dot(gradient);
        let mut at = 0;
        loop {
            let (order, derivative) = &self.known[at];
            let spread = self.differences.plateau(*order).spread;
            let bound = (allowed + spread) * condition;
            let error = (found - bound::weighed(cotangent, derivative)).abs();
            let compared = Compared { error, bound, order: *order };
            let next = Order::ALL.into_iter().find(|next| next > order);
            let better = next.filter(|next| {
                self.differences.plateau(*next).spread <= self.differences.plateau(*order).spread
            });
            match better {
                Some(next) if !(error <= bound) => {
                    at += 1;
                    if self.known.len() == at {
                        let derivative = self.differences.along(&self.direction, next)?;
                        self.known.push((next, derivative));
                    }
                }
                _ => return Ok(compared),
            }
        }
    }
}

/// Comparisons as they are made.
#[derive(Default)]
pub(super) struct Tally {
    pub report: GradientReport,
}

impl Tally {
    pub(super) fn add(&mut self, compared: &Compared, place: impl Fn() -> String) {
        let Compared { error, bound, order } = *compared;
        let report = &mut self.report;
        let worse = report.comparisons == 0 || ratio(error, bound) > report.ratio();
        report.comparisons += 1;
        report.orders[order as usize] += 1;
        if !(error <= bound) {
            report.over += 1;
        }
        if worse {
            report.error = error.is_finite().then_some(error);
            report.bound = bound;
            report.at = place();
        }
    }

    fn uncertain(&mut self, differences: &Differences<'_>, order: Order) {
        let plateau = differences.plateau(order);
        if self.report.step == 0.0 || plateau.spread > self.report.spread {
            self.report.step = plateau.step;
            self.report.spread = plateau.spread;
        }
    }

    fn power(&mut self, power: f64, gradient: &[f64]) {
        let square: f64 = gradient.iter().map(|g| g * g).sum();
        let rms = (square / gradient.len().max(1) as f64).sqrt();
        let relative = if power == 0.0 { 0.0 } else { power / rms };
        let report = &mut self.report;
        if report.relative_power <= relative {
            report.relative_power = if relative.is_finite() { relative } else { f64::MAX };
            report.power = if power.is_finite() { power } else { f64::MAX };
        }
    }

    pub(super) fn finish(self) -> GradientReport {
        self.report
    }
}
