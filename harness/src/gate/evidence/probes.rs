//! E4: calls that show one kind of bug each.

use mlx_parity_tensor::HostTensor;

use super::{exactness, place};

/// What is wrong with results that must be those of another call, bit for bit.
pub fn same(results: &[HostTensor], other: &[HostTensor]) -> Option<String> {
    if results.len() != other.len() {
        return Some(format!("{} results, the other call gives {}", results.len(), other.len()));
    }
    exactness::check(results, other)
}

/// What is wrong with results that must not be NaN.
pub fn no_nan(results: &[HostTensor]) -> Option<String> {
    results.iter().enumerate().find_map(|(k, found)| {
        let at = found.to_f64().iter().position(|x| x.is_nan())?;
        Some(format!("result {k}{}: got NaN, want a number", place(found.shape(), at)))
    })
}
