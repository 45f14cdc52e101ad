//! A bound on the error, in ULP of the output dtype scaled by the op's condition.
//!
//! The unit of one element is the spacing of the output dtype at `max(condition, |want|)`. For a sum of products the
//! condition is Σ|aᵢbᵢ|: rounding each product and partial sum moves the result by at most that many spacings, however
//! small the result itself is after cancellation. For an elementwise op it is |want|, and the unit is the plain ULP.

use mlx_parity_tensor::{Dtype, HostTensor, TensorView};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::bits::Element;
use super::class::Class;
use super::error::LengthMismatch;
use super::ulp::unit_in_last_place;

/// Whether `-0` and `+0` count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zeros {
    /// A zero of the other sign is of another class, and fails.
    Signed,
    /// The sign of a zero is free.
    Unsigned,
}

/// Whether a result keeps its bound, and by how much.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToleranceReport {
    /// Every element is of the wanted class and within the bound.
    pub held: bool,
    /// The tolerance asked for, in units.
    pub tolerance: f64,
    /// Elements compared.
    pub elements: u64,
    /// Elements over the bound, those of another class included.
    pub over: u64,
    /// Elements of another class (NaN, infinity, and sign of zero where it counts). No tolerance lets them pass.
    pub apart: u64,
    /// The smallest tolerance that lets every element pass that is of the wanted class.
    pub minimum: f64,
    /// The element that needs it, or the first of another class.
    pub worst: Option<WorstElement>,
}

/// The element farthest over, or nearest to, its bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorstElement {
    /// Row-major index.
    pub index: usize,
    /// Coordinates, one for each axis.
    pub coords: Vec<usize>,
    /// The element found.
    pub got: Element,
    /// The reference rounded to the output dtype.
    pub want: Element,
    /// The reference itself.
    pub reference: String,
    /// Error in units; `None` for another class.
    pub units: Option<f64>,
}

/// What one element needs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Need {
    /// This tolerance.
    Units(f64),
    /// No tolerance is enough.
    Apart,
}

impl Need {
    fn within(self, tolerance: f64) -> bool {
        matches!(self, Self::Units(units) if units <= tolerance)
    }

    fn exceeds(self, other: Self) -> bool {
        match (self, other) {
            (Self::Apart, Self::Units(_)) => true,
            (Self::Units(a), Self::Units(b)) => a > b,
            (_, Self::Apart) => false,
        }
    }
}

/// Checks `got` against the float64 reference `want`, each element with its `condition` (same order and number).
///
/// The wanted class is that of the reference rounded to the output dtype, except that a finite reference beyond the
/// dtype's range may also be met by its largest value or infinity when that is within the bound.
///
/// # Errors
/// [`LengthMismatch`].
pub fn check_tolerance(
    got: &TensorView<'_>,
    want: &[f64],
    condition: &[f64],
    tolerance: f64,
    zeros: Zeros,
) -> Result<ToleranceReport, LengthMismatch> {
    LengthMismatch::check("reference", want.len(), got)?;
    LengthMismatch::check("condition", condition.len(), got)?;
    let dtype = got.dtype();
    let needs: Vec<Need> = (got.to_f64().into_par_iter())
        .zip(want.par_iter().zip(condition))
        .with_min_len(1 << 14)
        .map(|(got, (want, condition))| need(dtype, got, *want, *condition, zeros))
        .collect();
    Ok(report(got, want, tolerance, &needs))
}

fn need(dtype: Dtype, got: f64, want: f64, condition: f64, zeros: Zeros) -> Need {
    let (found, wanted) = (Class::of(got), Class::of(want));
    if zeros == Zeros::Signed && found.differs_in_zero_sign(wanted) {
        return Need::Apart;
    }
    if got == want || (found == wanted && !found.is_finite()) {
        return Need::Units(0.0);
    }
    let magnitude = if condition > want.abs() { condition } else { want.abs() };
    let unit = unit_in_last_place(dtype, magnitude);
    if found.is_finite() && wanted.is_finite() {
        return units((got - want).abs(), unit);
    }
    overflow(dtype, got, want, unit)
}

/// An infinity found for a finite reference stands for a value at the overflow threshold or beyond.
fn overflow(dtype: Dtype, got: f64, want: f64, unit: f64) -> Need {
    let Some(threshold) = overflow_threshold(dtype) else { return Need::Apart };
    if !(got.is_infinite() && want.is_finite() && got.signum() == want.signum()) {
        return Need::Apart;
    }
    let missing = threshold - want.abs();
    if missing <= 0.0 { Need::Units(0.0) } else { units(missing, unit) }
}

fn units(error: f64, unit: f64) -> Need {
    let units = error / unit;
    // A NaN condition or reference bounds nothing.
    if units.is_nan() { Need::Apart } else { Need::Units(units) }
}

/// Numbers of at least this magnitude round to infinity; `None` where the dtype has none, or no f64 lies beyond.
const fn overflow_threshold(dtype: Dtype) -> Option<f64> {
    match dtype {
        Dtype::F8E5M2 => Some(61_440.0),
        Dtype::F16 => Some(65_520.0),
        // 2^128 less half the spacing below it: 2^119 for bf16, 2^103 for f32.
        Dtype::Bf16 => Some(f64::from_bits(0x47ef_f000_0000_0000)),
        Dtype::F32 => Some(f64::from_bits(0x47ef_ffff_f000_0000)),
        _ => None,
    }
}

fn report(got: &TensorView<'_>, want: &[f64], tolerance: f64, needs: &[Need]) -> ToleranceReport {
    let (mut over, mut apart, mut minimum) = (0, 0, 0.0);
    let mut worst: Option<(usize, Need)> = None;
    for (index, &need) in needs.iter().enumerate() {
        over += u64::from(!need.within(tolerance));
        match need {
            Need::Apart => apart += 1,
            Need::Units(units) if units > minimum => minimum = units,
            Need::Units(_) => {}
        }
        let floor = worst.map_or(Need::Units(0.0), |(_, need)| need);
        if need.exceeds(floor) {
            worst = Some((index, need));
        }
    }
    let elements = needs.len() as u64;
    let worst = worst.map(|(index, need)| WorstElement::at(got, want, index, need));
    ToleranceReport { held: over == 0, tolerance, elements, over, apart, minimum, worst }
}

impl WorstElement {
    fn at(got: &TensorView<'_>, want: &[f64], index: usize, need: Need) -> Self {
        let reference = want[index];
        let rounded = HostTensor::from_f64_as(got.dtype(), [1], &[reference]);
        // Integer dtypes refuse a reference they cannot hold; it is shown as it is.
        let want = rounded.map_or_else(
            |_| Element { hex: "-".to_owned(), decimal: reference.to_string() },
            |tensor| Element::at(&tensor.view(), 0),
        );
        let units = if let Need::Units(units) = need { Some(units) } else { None };
        let (coords, got) = (got.coords(index), Element::at(got, index));
        Self { index, coords, got, want, reference: format!("{reference:?}"), units }
    }
}

/// `held: 1.5 of 4 ulp` or `over: 3 of 1024, needs 7.5 of 4 ulp, at [0, 3] got … want …`
impl std::fmt::Display for ToleranceReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { held, tolerance, elements, over, apart, minimum, worst } = self;
        if *held {
            return write!(f, "held: {minimum:.3} of {tolerance} ulp");
        }
        write!(f, "over: {over} of {elements}, needs {minimum:.3} of {tolerance} ulp")?;
        if *apart > 0 {
            write!(f, ", {apart} of another class")?;
        }
        match worst {
            Some(WorstElement { coords, got, want, .. }) => {
                write!(f, ", at {coords:?} got {got} want {want}")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(dtype: Dtype, got: f64, want: f64, condition: f64, tolerance: f64) -> ToleranceReport {
        let got = HostTensor::from_f64_as(dtype, [1], &[got]).unwrap();
        check_tolerance(&got.view(), &[want], &[condition], tolerance, Zeros::Signed).unwrap()
    }

    #[test]
    fn the_unit_is_the_ulp_of_the_condition() {
        // bf16 has a spacing of 2^-7 at 1 and of 1/8 at 20.
        let one_ulp = check(Dtype::Bf16, 1.0 + 1.0 / 128.0, 1.0, 1.0, 1.0);
        assert!(one_ulp.held && one_ulp.minimum == 1.0, "{one_ulp}");
        assert!(!check(Dtype::Bf16, 1.0 + 1.0 / 128.0, 1.0, 1.0, 0.999).held);
        let cancelled = check(Dtype::Bf16, 0.125, 0.0, 20.0, 1.0);
        assert!(cancelled.held && cancelled.minimum == 1.0, "{cancelled}");
        assert!(!check(Dtype::Bf16, 0.25, 0.0, 20.0, 1.0).held);
        assert!(
            check(Dtype::Bf16, 20.375, 20.25, 1e-3, 1.0).held,
            "never below the wanted magnitude"
        );
    }

    #[test]
    fn nan_passes_nothing_and_nothing_passes_for_nan() {
        for tolerance in [0.0, 1e308, f64::INFINITY, f64::NAN] {
            assert!(!check(Dtype::F32, f64::NAN, 1.0, 1.0, tolerance).held);
            assert!(!check(Dtype::F32, 1.0, f64::NAN, 1.0, tolerance).held);
            assert!(!check(Dtype::F32, f64::INFINITY, f64::NAN, 1.0, tolerance).held);
            assert!(!check(Dtype::F32, f64::INFINITY, f64::NEG_INFINITY, 1.0, tolerance).held);
            assert!(!check(Dtype::F32, 1.0, f64::INFINITY, 1.0, tolerance).held);
        }
        assert!(!check(Dtype::F32, 1.0, 1.0, 1.0, f64::NAN).held, "a NaN bound fails");
        assert!(check(Dtype::F32, f64::NAN, f64::NAN, 1.0, 0.0).held);
        assert!(check(Dtype::F32, f64::INFINITY, f64::INFINITY, 1.0, 0.0).held);
        assert!(
            !check(Dtype::F32, 1.5, 1.0, f64::NAN, 1.0).held,
            "a NaN condition loosens nothing"
        );
    }

    #[test]
    fn the_sign_of_zero_counts_where_it_is_asked_for() {
        let got = HostTensor::from_f32([1], &[-0.0]).unwrap();
        let held = |zeros| check_tolerance(&got.view(), &[0.0], &[1.0], 9.0, zeros).unwrap().held;
        assert!(!held(Zeros::Signed) && held(Zeros::Unsigned));
        assert!(check(Dtype::F32, -1e-45, 0.0, 0.0, 1.0).held, "a small number is no zero");
    }

    #[test]
    fn overflow_is_measured_from_the_threshold() {
        let inf = f64::INFINITY;
        assert!(
            check(Dtype::F16, inf, 65_520.0, 0.0, 0.0).held,
            "that is where f16 rounds to infinity"
        );
        assert_eq!(check(Dtype::F16, inf, 65_504.0, 0.0, 0.0).minimum, 0.5);
        assert!(check(Dtype::F16, 65_504.0, 65_536.0, 0.0, 1.0).held);
        assert!(!check(Dtype::F16, inf, 60_000.0, 0.0, 4.0).held);
        assert!(!check(Dtype::F16, -inf, 65_520.0, 0.0, 1e9).held);
        assert!(!check(Dtype::F64, inf, 1e300, 0.0, 1e300).held);
        for dtype in [Dtype::F8E5M2, Dtype::F16, Dtype::Bf16, Dtype::F32] {
            let threshold = overflow_threshold(dtype).unwrap();
            let rounded = |x| HostTensor::from_f64_as(dtype, [1], &[x]).unwrap().value_at(0);
            assert!(rounded(threshold).is_infinite() && rounded(threshold.next_down()).is_finite());
        }
    }

    #[test]
    fn the_report_names_the_worst_and_the_minimum() {
        let got =
            HostTensor::from_f32([2, 2], &[1.0, 1.0, 1.0 + 4.0 * f32::EPSILON, 1.0 + f32::EPSILON])
                .unwrap();
        let report =
            check_tolerance(&got.view(), &[1.0; 4], &[1.0; 4], 2.0, Zeros::Signed).unwrap();
        assert_eq!((report.held, report.over, report.minimum), (false, 1, 4.0));
        assert_eq!(report.worst.as_ref().unwrap().coords, [1, 0]);
        assert_eq!(
            report.to_string(),
            "over: 1 of 4, needs 4.000 of 2 ulp, at [1, 0] got 0x3f800004 (1.0000005) want 0x3f800000 (1)"
        );
    }

    #[test]
    fn lengths_must_agree() {
        let got = HostTensor::from_f32([2], &[1.0; 2]).unwrap();
        let error = |w: &[f64], c: &[f64]| {
            check_tolerance(&got.view(), w, c, 1.0, Zeros::Signed).unwrap_err().what
        };
        assert_eq!((error(&[1.0], &[1.0; 2]), error(&[1.0; 2], &[])), ("reference", "condition"));
    }

    proptest! {
        #[test]
        fn a_rounded_reference_needs_at_most_half_a_unit(want: f64, which in 0usize..6) {
            let dtype = [Dtype::F8E5M2, Dtype::F8E4M3, Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64][which];
            let report = check(dtype, want, want, want.abs(), 0.5);
            prop_assert!(report.held || (dtype == Dtype::F8E4M3 && want.abs() > 448.0), "{dtype} {want}: {report}");
        }

        #[test]
        fn the_minimum_is_the_least_that_holds(got: [f32; 4], want: [f32; 4]) {
            let tensor = HostTensor::from_f32([4], &got).unwrap();
            let want = want.map(f64::from);
            let check = |tolerance| {
                check_tolerance(&tensor.view(), &want, &want, tolerance, Zeros::Unsigned).unwrap()
            };
            let minimum = check(0.0).minimum;
            prop_assert_eq!(check(minimum).held, check(0.0).apart == 0);
            prop_assert!(minimum == 0.0 || !check(minimum.next_down()).held);
        }
    }
}
