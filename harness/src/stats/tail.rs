//! Quantiles of a sample in which each cluster counts any number of times.

use rayon::prelude::*;

use super::clusters::Clusters;
use super::quantile::{between, place};

/// Values in ascending order, with the cluster of each, and how many of each cluster come before every run of them.
///
/// A quantile of a resample is then found by halving over the runs, and a walk through one.
pub(super) struct Sorted {
    values: Vec<f64>,
    clusters: Vec<u32>,
    run: usize,
    count: usize,
    /// Of run r and cluster c at `r·count + c`: values of the cluster before the run. One run more than there are.
    before: Vec<u32>,
}

/// Most runs, so that the counts stay in the cache.
const RUNS: usize = 2048;
/// Least values of a run.
const SHORTEST: usize = 64;

impl Sorted {
    pub(super) fn new(values: &[f64], clusters: &Clusters) -> Self {
        let mut order: Vec<(f64, u32)> =
            values.iter().copied().zip(clusters.of.iter().copied()).collect();
        order.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (values, of): (Vec<f64>, Vec<u32>) = order.into_iter().unzip();
        let run = values.len().div_ceil(RUNS).max(SHORTEST);
        let mut counts = vec![0; clusters.count];
        let mut before = counts.clone();
        for of in of.chunks(run) {
            for cluster in of {
                counts[*cluster as usize] += 1;
            }
            before.extend_from_slice(&counts);
        }
        Self { values, clusters: of, run, count: clusters.count, before }
    }

    /// Quantile `q` where cluster c counts `weights[c]` times. NaN where nothing counts.
    pub(super) fn quantile(&self, weights: &[u32], q: f64) -> f64 {
        let runs = self.values.len().div_ceil(self.run);
        let Some(last) = self.counted_before(runs, weights).checked_sub(1) else {
            return f64::NAN;
        };
        let (at, part) = place(last as usize, q);
        let low = self.walk(at as u64, weights);
        let high = if part == 0.0 { low } else { self.walk(at as u64 + 1, weights) };
        between(self.values[low], self.values[high], part)
    }

    fn counted_before(&self, run: usize, weights: &[u32]) -> u64 {
        let before = &self.before[run * self.count..][..self.count];
        before.iter().zip(weights).map(|(n, weight)| u64::from(*n) * u64::from(*weight)).sum()
    }

    /// Index of the value at place `at` of the weighted sample.
    fn walk(&self, at: u64, weights: &[u32]) -> usize {
        let runs = self.values.len().div_ceil(self.run);
        let (mut low, mut high) = (0, runs);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.counted_before(middle, weights) <= at { low = middle } else { high = middle }
        }
        let mut left = at - self.counted_before(low, weights);
        let start = low * self.run;
        for (index, cluster) in self.clusters[start..].iter().enumerate() {
            let weight = u64::from(weights[*cluster as usize]);
            if left < weight {
                return start + index;
            }
            left -= weight;
        }
        self.values.len() - 1
    }
}
