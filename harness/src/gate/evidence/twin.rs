//! E3: the kernel in float32 beside float64.

use mlx_parity_tensor::HostTensor;

use super::got_want;

/// Most of the largest error, as a part of the largest value.
pub const BOUND: f64 = 1e-5;

/// The largest error of a result, as a part of max|o|, and what is wrong with it.
///
/// Where o is 0 throughout, so must the result be.
pub fn check(found: &HostTensor, exact: &[f64]) -> (f64, Option<String>) {
    let values = found.to_f64();
    let finite = |at: &usize| exact[*at].is_finite();
    let largest =
        exact.iter().filter(|x| x.is_finite()).fold(0.0, |most: f64, x| most.max(x.abs()));
    let error = |at: usize| (values[at] - exact[at]).abs();
    let far = |at: &usize| !(error(*at) <= BOUND * largest);
    let breach = (0..values.len()).filter(finite).find(far);
    let most = (0..values.len())
        .filter(finite)
        .map(error)
        .fold(0.0, |most: f64, e| if e > most || e.is_nan() { e } else { most });
    let part = if largest > 0.0 { most / largest } else { most };
    (
        part,
        breach.map(|at| {
            format!("{part:.1e} of the largest value ({})", got_want(found, at, exact[at]))
        }),
    )
}
