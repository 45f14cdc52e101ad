//! How a number is spread over positions.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::position::null_is_nan;
use super::quantile::of_sorted;
use super::sum::mean;

/// How a number is spread over positions. Quantiles as NumPy's `linear`; all NaN (`null` in JSON) without positions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Mean.
    #[serde(deserialize_with = "null_is_nan")]
    pub mean: f64,
    /// Median.
    #[serde(deserialize_with = "null_is_nan")]
    pub median: f64,
    /// 95th percentile.
    #[serde(deserialize_with = "null_is_nan")]
    pub p95: f64,
    /// 99th percentile.
    #[serde(deserialize_with = "null_is_nan")]
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(deserialize_with = "null_is_nan")]
    pub p999: f64,
    /// Greatest.
    #[serde(deserialize_with = "null_is_nan")]
    pub max: f64,
    /// Index of the first greatest, among all positions.
    pub max_at: Option<usize>,
}

impl Distribution {
    /// Of `values`, the index of each of which is in `at`.
    pub(super) fn of(values: &[f64], at: &[usize]) -> Self {
        let mut sorted = values.to_vec();
        sorted.par_sort_unstable_by(f64::total_cmp);
        let max = of_sorted(&sorted, 1.0);
        let [median, p95, p99, p999] = [0.5, 0.95, 0.99, 0.999].map(|q| of_sorted(&sorted, q));
        let max_at = values.iter().position(|x| *x == max).map(|index| at[index]);
        Self { mean: mean(values), median, p95, p99, p999, max, max_at }
    }
}
