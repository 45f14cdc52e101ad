//! E5: the same call again.

use mlx_parity_tensor::HostTensor;

use super::{got_want, spacing};
use crate::compare::bit_exact;

/// Runs that are compared with the first.
pub const RUNS: usize = 20;

/// What is wrong with a repeat: other bits, or more than `ulp` of the largest value away, where so much is declared.
pub fn check(first: &[HostTensor], again: &[HostTensor], ulp: Option<u32>) -> Option<String> {
    first.iter().zip(again).enumerate().find_map(|(k, (first, again))| {
        if bit_exact(&again.view(), &first.view()).is_exact() {
            return None;
        }
        let (a, b) = (first.to_f64(), again.to_f64());
        let largest =
            a.iter().filter(|x| x.is_finite()).fold(0.0, |most: f64, x| most.max(x.abs()));
        let allowed = f64::from(ulp.unwrap_or(0)) * spacing(first.dtype(), largest);
        let far = |at: &usize| {
            first.bits_at(*at) != again.bits_at(*at) && !((a[*at] - b[*at]).abs() <= allowed)
        };
        let at = (0..a.len()).find(far)?;
        Some(format!("result {k}{}", got_want(again, at, a[at])))
    })
}
