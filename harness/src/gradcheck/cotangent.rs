//! Cotangents. None is uniform: a gradient that ignores its cotangent, or sums it, agrees on ones.

use mlx_parity_tensor::HostTensor;
use serde::{Deserialize, Serialize};

use super::{Form, GradError};
use crate::ops::Source;

/// A way to make cotangents. All values are multiples of 1/16 below 5, so that sums of two are exact in
/// every floating dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cotangent {
    /// Bell-shaped, never zero.
    Random,
    /// Rising along each row, positive.
    Ramp,
    /// One at the very last element, else zero.
    Last,
    /// ±1 in turn.
    Alternating,
    /// All ones; for kinks only, where a convex function needs weights that are not negative.
    Ones,
    /// All zeros.
    Zero,
}

impl Cotangent {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Ramp => "ramp",
            Self::Last => "last element",
            Self::Alternating => "alternating",
            Self::Ones => "ones",
            Self::Zero => "zero",
        }
    }

    /// The values for every output, one behind the other.
    pub fn values(self, forms: &[Form], source: &mut Source) -> Vec<f64> {
        let mut values = Vec::new();
        for form in forms {
            let width = form.shape.last().copied().unwrap_or(1).max(1);
            values.extend((0..form.len()).map(|at| match self {
                Self::Random => drawn(source),
                Self::Ramp => ((at % width) % 64 + 1) as f64 / 16.0,
                Self::Alternating => {
                    if at.is_multiple_of(2) {
                        1.0
                    } else {
                        -1.0
                    }
                }
                Self::Ones => 1.0,
                Self::Last | Self::Zero => 0.0,
            }));
        }
        if let (Self::Last, Some(last)) = (self, values.last_mut()) {
            *last = 1.0;
        }
        values
    }
}

fn drawn(source: &mut Source) -> f64 {
    let value = (source.bell() * 8.0).round().clamp(-32.0, 32.0) / 8.0;
    if value == 0.0 { 0.125 } else { value }
}

/// Flat values as one tensor for each output.
///
/// # Errors
/// [`GradError`] where there are not as many.
pub fn tensors(forms: &[Form], values: &[f64]) -> Result<Vec<HostTensor>, GradError> {
    let mut rest = values;
    let mut made = Vec::with_capacity(forms.len());
    for form in forms {
        let (mine, others) = rest.split_at_checked(form.len()).unwrap_or((rest, &[]));
        made.push(HostTensor::from_f64_as(form.dtype, form.shape.as_slice(), mine)?);
        rest = others;
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::Dtype;

    use super::*;

    #[test]
    fn values_and_their_sums_are_exact_in_every_dtype() {
        let forms = [Form { dtype: Dtype::Bf16, shape: vec![40, 70] }];
        let mut source = Source::new(3);
        let random = Cotangent::Random.values(&forms, &mut source);
        for kind in [Cotangent::Ramp, Cotangent::Last, Cotangent::Alternating] {
            let other = kind.values(&forms, &mut source);
            let sum: Vec<f64> = random.iter().zip(&other).map(|(a, b)| 2.0 * a - b).collect();
            for dtype in [Dtype::Bf16, Dtype::F16] {
                let forms = [Form { dtype, shape: vec![40, 70] }];
                assert_eq!(tensors(&forms, &other).unwrap()[0].to_f64(), other);
                if kind == Cotangent::Alternating {
                    assert_eq!(tensors(&forms, &sum).unwrap()[0].to_f64(), sum);
                }
            }
        }
        assert!(random.iter().all(|c| *c != 0.0));
    }
}
