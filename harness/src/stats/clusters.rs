//! Values grouped by the cluster they are of.

use std::collections::HashMap;

/// Which cluster each value is of, the clusters numbered from 0 in the order in which they are first seen.
pub(super) struct Clusters {
    pub(super) of: Vec<u32>,
    pub(super) count: usize,
}

impl Clusters {
    pub(super) fn new(labels: impl IntoIterator<Item = u32>) -> Self {
        let mut numbers = HashMap::new();
        let mut number = |label| {
            let next = numbers.len() as u32;
            *numbers.entry(label).or_insert(next)
        };
        let of = labels.into_iter().map(&mut number).collect();
        Self { of, count: numbers.len() }
    }

    /// Sum of the values of each cluster.
    pub(super) fn sums(&self, values: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        for (cluster, value) in self.of.iter().zip(values) {
            sums[*cluster as usize] += value;
        }
        sums
    }

    /// Values of each cluster.
    pub(super) fn sizes(&self) -> Vec<f64> {
        self.sums(std::iter::repeat(1.0))
    }

    /// Standard error of the mean of the values, robust to any dependence within clusters, with the factor G / (G − 1)
    /// for few of them (CR1 of Cameron and Miller, "A practitioner's guide to cluster-robust inference", 2015). `None`
    /// from fewer than two clusters.
    pub(super) fn mean_error(&self, values: &[f64]) -> Option<f64> {
        if self.count < 2 {
            return None;
        }
        let (n, g) = (values.len() as f64, self.count as f64);
        let mean = values.iter().sum::<f64>() / n;
        let residuals = self.sums(values.iter().map(|x| x - mean));
        let squares: f64 = residuals.iter().map(|sum| sum * sum).sum();
        Some((g / (g - 1.0) * squares).sqrt() / n)
    }
}
