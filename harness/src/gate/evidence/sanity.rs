//! E0: the form of the results, and what the run did to memory.

use mlx_parity_tensor::HostTensor;

use super::{Class, got_want};
use crate::gate::memory::Answer;

/// What is wrong with an answer beside the baseline's results and the float64 ones; none where all is sane.
///
/// A result's class (NaN, ±∞, finite) is that of the baseline, or that of the float64 result rounded to its dtype:
/// an accumulator in float32 need not overflow where one in float16 does.
pub fn check(answer: &Answer, baseline: &[HostTensor], exact: &[Vec<f64>]) -> Option<String> {
    if let Some(misdeed) = answer.misdeeds.first() {
        return Some(misdeed.clone());
    }
    let (found, wanted) = (answer.results.len(), baseline.len());
    if found != wanted || found != exact.len() {
        return Some(format!(
            "{found} results, the baseline has {wanted}, float64 {}",
            exact.len()
        ));
    }
    let results = answer.results.iter().zip(baseline).zip(exact).enumerate();
    results.into_iter().find_map(|(k, ((found, baseline), exact))| {
        form(found, baseline, exact.len())
            .or_else(|| classes(found, baseline, exact))
            .map(|what| format!("result {k}{what}"))
    })
}

fn form(found: &HostTensor, baseline: &HostTensor, exact: usize) -> Option<String> {
    if found.dtype() != baseline.dtype() {
        return Some(format!(": {}, the baseline is {}", found.dtype(), baseline.dtype()));
    }
    if found.shape() != baseline.shape() || found.len() != exact {
        let (found, wanted) = (found.shape(), baseline.shape());
        return Some(format!(": {found:?}, the baseline is {wanted:?}, float64 has {exact}"));
    }
    None
}

fn classes(found: &HostTensor, baseline: &HostTensor, exact: &[f64]) -> Option<String> {
    let rounded = HostTensor::from_f64_as(found.dtype(), found.shape(), exact);
    let rounded = rounded.as_ref().map_or_else(|_| exact.to_vec(), HostTensor::to_f64);
    let (found_values, baseline) = (found.to_f64(), baseline.to_f64());
    let wrong = |at: &usize| {
        let class = Class::of(found_values[*at]);
        class != Class::of(baseline[*at]) && class != Class::of(rounded[*at])
    };
    (0..found_values.len()).find(wrong).map(|at| got_want(found, at, baseline[at]))
}
