//! What holds of any gradient, whatever the function.

use mlx_parity_tensor::{HostTensor, Layout};

use super::{
    Cotangent, Differentiable, GradError, GradientReport, Settings, bound,
    check::{Backward, Conditions},
    cotangent,
};

/// What properties are looked at on.
pub(super) struct Scope<'a> {
    pub subject: &'a dyn Differentiable,
    pub operands: &'a [HostTensor],
    pub settings: &'a Settings,
    /// For each operand with a gradient the bound of a whole gradient under each cotangent.
    pub conditions: &'a [Conditions],
}

/// Why the gradient of an operand has not its dtype and shape.
pub(super) fn form(
    operand: usize,
    own: &HostTensor,
    gradients: &[HostTensor],
    slot: usize,
) -> Option<String> {
    let Some(gradient) = gradients.get(slot) else {
        return Some(format!("operand {operand} has no gradient"));
    };
    let fits = gradient.dtype() == own.dtype() && gradient.shape() == own.shape();
    (!fits).then(|| {
        format!(
            "the gradient of operand {operand} is {} {:?}, the operand {} {:?}",
            gradient.dtype(),
            gradient.shape(),
            own.dtype(),
            own.shape()
        )
    })
}

/// Looks at each property that the settings ask for.
pub(super) fn check(
    scope: &Scope<'_>,
    backwards: &[Backward],
    report: &mut GradientReport,
) -> Result<(), GradError> {
    let mut look = |name: &str, failures: Vec<String>| {
        report.properties.push(name.to_owned());
        report.failures.extend(failures);
    };
    look("again", scope.again(&backwards[0])?);
    look("zero", scope.zero()?);
    look("linear", scope.linear(backwards)?);
    if scope.settings.views {
        look("views", scope.views(&backwards[0])?);
    }
    if !scope.settings.batched.is_empty() {
        look("batch", scope.batch(&backwards[0])?);
    }
    Ok(())
}

impl Scope<'_> {
    fn ask(&self, cotangent: &[f64], layout: Layout) -> Result<Vec<HostTensor>, GradError> {
        let cotangents = cotangent::tensors(self.subject.outputs(), cotangent)?;
        self.subject.gradients(self.operands, &cotangents, layout)
    }

    /// The same backward twice gives the same bits.
    fn again(&self, first: &Backward) -> Result<Vec<String>, GradError> {
        let second = self.ask(&first.values, Layout::Contiguous)?;
        let differs = |(a, b): (&HostTensor, &HostTensor)| a.bytes() != b.bytes();
        let wrt = self.subject.wrt().iter();
        let pairs = wrt.zip(first.gradients.iter().zip(&second));
        let failed = pairs.filter(|(_, pair)| differs(*pair));
        Ok(failed.map(|(at, _)| format!("the same backward twice: operand {at} differs")).collect())
    }

    /// A zero cotangent gives exactly zero.
    fn zero(&self) -> Result<Vec<String>, GradError> {
        let outputs = self.subject.outputs();
        let none = Cotangent::Zero.values(outputs, &mut bound::source(0, 0));
        let gradients = self.ask(&none, Layout::Contiguous)?;
        let wrt = self.subject.wrt().iter().zip(&gradients);
        let found = wrt.filter_map(|(at, gradient)| {
            let value = gradient.to_f64().into_iter().find(|g| *g != 0.0)?;
            Some(format!("a zero cotangent gives operand {at} a gradient of {value}"))
        });
        Ok(found.collect())
    }

    /// 2·first − last gives 2·(gradient of the first) − (gradient of the last).
    fn linear(&self, backwards: &[Backward]) -> Result<Vec<String>, GradError> {
        let (first, last) = (&backwards[0], &backwards[backwards.len() - 1]);
        let combine = |a: &[f64], b: &[f64]| -> Vec<f64> {
            a.iter().zip(b).map(|(a, b)| 2.0 * a - b).collect()
        };
        let combined = self.ask(&combine(&first.values, &last.values), Layout::Contiguous)?;
        let mut failures = Vec::new();
        for (slot, at) in self.subject.wrt().iter().enumerate() {
            let want = combine(&first.gradients[slot].to_f64(), &last.gradients[slot].to_f64());
            let bounds = &self.conditions[slot];
            let bound = 4.0 * (bounds[0] + bounds[bounds.len() - 1]);
            failures.extend(
                apart(&combined[slot].to_f64(), &want, bound)
                    .map(|apart| format!("operand {at} is not linear in the cotangent: {apart}")),
            );
        }
        Ok(failures)
    }

    /// Other layouts of operands and cotangents give the same gradients.
    fn views(&self, first: &Backward) -> Result<Vec<String>, GradError> {
        let mut failures = Vec::new();
        let outputs = self.subject.outputs();
        let cotangents = cotangent::tensors(outputs, &first.values)?;
        for layout in Layout::ALL.into_iter().skip(1) {
            let (operands, taken) = crate::ops::logical(self.operands, layout);
            if !taken {
                continue;
            }
            let (logical, _) = crate::ops::logical(&cotangents, layout);
            let moved = self.subject.gradients(&operands, &cotangents, layout)?;
            let same = operands == self.operands && logical == cotangents;
            let straight = if same {
                first.gradients.clone()
            } else {
                self.subject.gradients(&operands, &logical, Layout::Contiguous)?
            };
            for (slot, at) in self.subject.wrt().iter().enumerate() {
                if moved[slot].bytes() == straight[slot].bytes() {
                    continue;
                }
                let bound = 2.0 * self.conditions[slot][0];
                let apart = apart(&moved[slot].to_f64(), &straight[slot].to_f64(), bound);
                failures.extend(apart.map(|apart| format!("operand {at}, {layout}: {apart}")));
            }
        }
        Ok(failures)
    }

    /// Items one by one give what they give together; what they share gets the sum.
    fn batch(&self, first: &Backward) -> Result<Vec<String>, GradError> {
        let (outputs, batched) = (self.subject.outputs(), &self.settings.batched);
        let items = self.operands[batched[0]].shape().first().copied().unwrap_or(0);
        let whole = cotangent::tensors(outputs, &first.values)?;
        let mut found: Vec<Vec<f64>> = vec![Vec::new(); self.subject.wrt().len()];
        for item in 0..items {
            let mut operands = self.operands.to_vec();
            for &at in batched {
                operands[at] = operands[at].rows(item..item + 1);
            }
            let cotangents: Vec<_> = whole.iter().map(|c| c.rows(item..item + 1)).collect();
            let gradients = self.subject.gradients(&operands, &cotangents, Layout::Contiguous)?;
            for (slot, at) in self.subject.wrt().iter().enumerate() {
                let gradient = gradients[slot].to_f64();
                if batched.contains(at) || item == 0 {
                    found[slot].extend(gradient);
                } else {
                    found[slot].iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
                }
            }
        }
        let mut failures = Vec::new();
        for (slot, at) in self.subject.wrt().iter().enumerate() {
            let bound = 2.0 * self.conditions[slot][0];
            let apart = apart(&found[slot], &first.gradients[slot].to_f64(), bound);
            failures.extend(
                apart.map(|apart| format!("operand {at}, item by item and together: {apart}")),
            );
        }
        Ok(failures)
    }
}

/// How two gradients differ, where they differ by more than `bound` in the Euclidean norm.
fn apart(found: &[f64], wanted: &[f64], bound: f64) -> Option<String> {
    if found.len() != wanted.len() {
        return Some(format!("{} entries, wanted {}", found.len(), wanted.len()));
    }
    let pairs = found.iter().zip(wanted);
    let distance = pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    (!(distance <= bound)).then(|| format!("{distance:.1e} apart, wanted {bound:.1e}"))
}
