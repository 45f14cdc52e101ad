//! Distance from float64, as E0 and E2 ask for it.

use mlx_parity_tensor::{Dtype, HostTensor};

/// Spacing of a dtype's values at a magnitude.
fn ulp(dtype: Dtype, magnitude: f64) -> f64 {
    let (digits, lowest) = match dtype {
        Dtype::F16 => (10, -14),
        Dtype::Bf16 => (7, -126),
        _ => (23, -126),
    };
    let exponent = if magnitude > 0.0 { magnitude.log2().floor() as i32 } else { lowest };
    2_f64.powi(exponent.max(lowest) - digits)
}

/// What a value is, before how large it is.
fn class(value: f64) -> &'static str {
    match value {
        _ if value.is_nan() => "NaN",
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "finite",
    }
}

/// Errors of a result and of its baseline, where both and float64 are finite.
struct Errors {
    found: Vec<f64>,
    baseline: Vec<f64>,
    largest: f64,
}

impl Errors {
    fn of(found: &[f64], baseline: &[f64], exact: &[f64]) -> Self {
        let mut errors = Self { found: Vec::new(), baseline: Vec::new(), largest: 0.0 };
        for ((&c, &b), &o) in found.iter().zip(baseline).zip(exact) {
            if c.is_finite() && b.is_finite() && o.is_finite() {
                errors.found.push(c - o);
                errors.baseline.push(b - o);
                errors.largest = o.abs().max(errors.largest);
            }
        }
        errors
    }

    /// rmse(c,o) ≤ m·rmse(b,o) + floor, max(c,o) ≤ 2·max(b,o) + floor.
    fn hold(&self, dtype: Dtype, floor: f64) -> Result<(), String> {
        let times = if dtype == Dtype::F32 { 2.0 } else { 3.0 };
        bounded("rmse", rmse(&self.found), times * rmse(&self.baseline) + floor)?;
        bounded("max", most(&self.found), 2.0 * most(&self.baseline) + floor)
    }

    /// |mean(c − o)| within four standard errors of a mean of errors like the baseline's or of one rounding. The elements
    /// of a row, `width` of them, share roundings (of a norm, of a sum of weights), so that a row counts once.
    fn unbiased(&self, dtype: Dtype, width: usize) -> Result<(), String> {
        let count = self.found.len().max(1) as f64;
        let rows = count / width as f64;
        let mean = |of: &[f64]| of.iter().sum::<f64>() / count;
        let spread = rmse(&self.baseline).max(ulp(dtype, self.largest));
        bounded(
            "bias",
            mean(&self.found).abs(),
            mean(&self.baseline).abs() + 4.0 * spread / rows.sqrt(),
        )
    }
}

fn rmse(errors: &[f64]) -> f64 {
    (errors.iter().map(|e| e * e).sum::<f64>() / errors.len().max(1) as f64).sqrt()
}

fn most(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |most, e| e.abs().max(most))
}

fn bounded(what: &str, error: f64, bound: f64) -> Result<(), String> {
    if error <= bound {
        return Ok(());
    }
    Err(format!("{what} {error:e}, bound {bound:e}"))
}

/// One result against float64 and its baseline: classes, then E2, whole and row by row, then bias.
pub fn near(found: &HostTensor, exact: &[f64], baseline: &[f64]) -> Result<(), String> {
    near_within(found, exact, baseline, 2.0)
}

/// [`near`] with a floor of so many ulp of the largest value.
pub fn near_within(
    found: &HostTensor,
    exact: &[f64],
    baseline: &[f64],
    floor: f64,
) -> Result<(), String> {
    let values = found.to_f64();
    if values.len() != exact.len() || baseline.len() != exact.len() {
        return Err(format!("{} elements, wanted {}", values.len(), exact.len()));
    }
    // What overflows the dtype may be finite in float64: the class is the baseline's.
    for (at, (&value, &wanted)) in values.iter().zip(baseline).enumerate() {
        if class(value) != class(wanted) {
            return Err(format!("element {at} is {value}, wanted {wanted}"));
        }
    }
    let dtype = found.dtype();
    let whole = Errors::of(&values, baseline, exact);
    let floor = floor * ulp(dtype, whole.largest);
    whole.hold(dtype, floor)?;
    let width = found.shape().last().copied().unwrap_or(1).max(1);
    whole.unbiased(dtype, width)?;
    let rows = values.chunks(width).zip(baseline.chunks(width)).zip(exact.chunks(width));
    for (at, ((found, baseline), exact)) in rows.enumerate() {
        let row = Errors::of(found, baseline, exact);
        row.hold(dtype, floor).map_err(|wrong| format!("row {at}: {wrong}"))?;
    }
    Ok(())
}

/// E3: the float32 twin within 1e-5 of float64, of the largest value, and finite where float64 fits.
pub fn twin(found: &HostTensor, exact: &[f64]) -> Result<(), String> {
    let values = found.to_f64();
    let fits = |wanted: f64| wanted.abs() <= f64::from(f32::MAX);
    let lost = values.iter().zip(exact).position(|(c, &o)| fits(o) && !c.is_finite());
    if let Some(at) = lost {
        return Err(format!("float32 twin: element {at} is {}, wanted {}", values[at], exact[at]));
    }
    let errors = Errors::of(&values, exact, exact);
    bounded("float32 twin: max", most(&errors.found), 1e-5 * errors.largest)
}

/// E5: runs differ by no more than so many ulp of the largest value.
pub fn spread(found: &HostTensor, spread: f64, times: f64) -> Result<(), String> {
    let largest = most(&found.to_f64());
    bounded("spread", spread, times * ulp(found.dtype(), largest))
}

/// That two results have the same shape and bits.
pub fn same(found: &HostTensor, wanted: &HostTensor) -> Result<(), String> {
    if found.dtype() != wanted.dtype() || found.shape() != wanted.shape() {
        return Err(format!("shape {:?}, wanted {:?}", found.shape(), wanted.shape()));
    }
    match (0..found.len()).find(|&i| found.bits_at(i) != wanted.bits_at(i)) {
        None => Ok(()),
        Some(i) => {
            Err(format!("element {i} is {}, its copy's {}", found.value_at(i), wanted.value_at(i)))
        }
    }
}
