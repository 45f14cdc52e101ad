//! Sums and means that lose little.

/// Terms that are added one by one.
const SHORT: usize = 32;

/// The sum of the sums of both halves, so that the error grows with the logarithm of the length (Higham, "Accuracy and
/// stability of numerical algorithms", §4.2).
pub(super) fn pairwise_sum(values: &[f64]) -> f64 {
    if values.len() <= SHORT {
        return values.iter().sum();
    }
    let (low, high) = values.split_at(values.len() / 2);
    pairwise_sum(low) + pairwise_sum(high)
}

/// Their mean; NaN without values.
pub(super) fn mean(values: &[f64]) -> f64 {
    pairwise_sum(values) / values.len() as f64
}
