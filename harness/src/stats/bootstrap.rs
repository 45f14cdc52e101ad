//! Intervals by drawing whole clusters again, with replacement (Efron and Tibshirani, "An introduction to the
//! bootstrap", 1993; by cluster: Davison and Hinkley, "Bootstrap methods and their application", 1997, §3.8).

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::clusters::Clusters;
use super::interval::Interval;
use super::quantile::of_sorted;
use super::tail::Sorted;
use crate::ops::Source;

/// Resampling settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    /// How often to draw.
    pub resamples: usize,
    /// Seed: the same one gives the same intervals, on any number of threads.
    pub seed: u64,
    /// Level of confidence.
    pub level: f64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 10_000, seed: 0, level: 0.95 }
    }
}

/// Two intervals of one number from the same resamples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Standard deviation of the resampled numbers.
    pub error: f64,
    /// Quantiles of the resampled numbers, at levels widened for few clusters: as far out as Student's t with one degree
    /// of freedom less than there are clusters, times √(G / (G − 1)) (Hesterberg, "What teachers should know about the
    /// bootstrap", 2015, §5.2).
    pub percentile: Interval,
    /// The same levels, corrected for bias and acceleration (Efron, "Better bootstrap confidence intervals", 1987), the
    /// acceleration by leaving out one cluster at a time.
    pub bca: Interval,
}

/// A number of a sample in which cluster c counts `weights[c]` times.
trait Statistic: Sync {
    fn of(&self, weights: &[u32]) -> f64;
}

/// The sum over clusters of the first part over that of the second.
struct Ratio(Vec<[f64; 2]>);

impl Statistic for Ratio {
    fn of(&self, weights: &[u32]) -> f64 {
        let (mut over, mut under) = (0.0, 0.0);
        for ([a, b], weight) in self.0.iter().zip(weights) {
            over += a * f64::from(*weight);
            under += b * f64::from(*weight);
        }
        over / under
    }
}

struct Quantile {
    sorted: Sorted,
    q: f64,
}

impl Statistic for Quantile {
    fn of(&self, weights: &[u32]) -> f64 {
        self.sorted.quantile(weights, self.q)
    }
}

impl Bootstrap {
    /// Intervals of the mean of `values`, where `clusters` says of which cluster each is. `None` from fewer than two
    /// clusters, which show no spread, when lengths differ, for a value that is not finite, or without resamples.
    pub fn mean(&self, values: &[f64], clusters: &[u32]) -> Option<Intervals> {
        let clusters = self.grouped(values, clusters)?;
        let sums = clusters.sums(values.iter().copied());
        let parts = sums.into_iter().zip(clusters.sizes()).map(|(sum, size)| [sum, size]);
        Some(self.intervals(&Ratio(parts.collect()), clusters.count))
    }

    /// Intervals of quantile `q` of `values` ([`super::quantile`]).
    pub fn quantile(&self, values: &[f64], clusters: &[u32], q: f64) -> Option<Intervals> {
        let clusters = self.grouped(values, clusters)?;
        let sorted = Sorted::new(values, &clusters);
        Some(self.intervals(&Quantile { sorted, q }, clusters.count))
    }

    fn grouped(&self, values: &[f64], clusters: &[u32]) -> Option<Clusters> {
        let finite = values.iter().all(|x| x.is_finite());
        if values.len() != clusters.len() || !finite || self.resamples == 0 {
            return None;
        }
        let clusters = Clusters::new(clusters.iter().copied());
        (clusters.count >= 2).then_some(clusters)
    }

    fn intervals(&self, statistic: &impl Statistic, clusters: usize) -> Intervals {
        let mut found = self.resampled(statistic, clusters);
        found.par_sort_unstable_by(f64::total_cmp);
        let mut weights = vec![1; clusters];
        let value = statistic.of(&weights);
        let reach = reach(clusters, self.level);
        let normal = Normal::standard();
        let percentile = [-reach, reach].map(|z| of_sorted(&found, normal.cdf(z)));
        let left_out = (0..clusters).map(|cluster| {
            weights[cluster] = 0;
            let without = statistic.of(&weights);
            weights[cluster] = 1;
            without
        });
        let acceleration = acceleration(&left_out.collect::<Vec<_>>());
        let bias = bias(&found, value);
        let corrected = |z: f64| corrected(z, bias, acceleration);
        let bca = [-reach, reach].map(|z| of_sorted(&found, normal.cdf(corrected(z))));
        Intervals {
            error: deviation(&found),
            percentile: Interval { low: percentile[0], high: percentile[1] },
            bca: Interval { low: bca[0], high: bca[1] },
        }
    }

    /// The number of each resample, in the order of their seeds.
    fn resampled(&self, statistic: &impl Statistic, clusters: usize) -> Vec<f64> {
        let mut seeds = Source::new(self.seed);
        let seeds: Vec<u64> = (0..self.resamples).map(|_| seeds.bits()).collect();
        let draw = |weights: &mut Vec<u32>, seed: &u64| {
            let mut source = Source::new(*seed);
            weights.fill(0);
            (0..clusters).for_each(|_| weights[source.below(clusters)] += 1);
            statistic.of(weights)
        };
        seeds.par_iter().map_init(|| vec![0; clusters], draw).collect()
    }
}

/// Standard errors to either side that hold `level` of Student's t with one degree of freedom less than `clusters`.
pub(super) fn student_t(clusters: usize, level: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, clusters as f64 - 1.0);
    student.map_or(f64::INFINITY, |t| t.inverse_cdf(f64::midpoint(1.0, level)))
}

/// The same, widened for the spread that a resample of few clusters lacks.
fn reach(clusters: usize, level: f64) -> f64 {
    let g = clusters as f64;
    student_t(clusters, level) * (g / (g - 1.0)).sqrt()
}

/// Where a bound at `z` goes; as far out as can be, where the correction has no end.
fn corrected(z: f64, bias: f64, acceleration: f64) -> f64 {
    let shrink = 1.0 - acceleration * (bias + z);
    if shrink > 0.0 { bias + (bias + z) / shrink } else { z.signum() * f64::INFINITY }
}

/// The normal quantile of the part of the resampled numbers below the estimate, of which equals count half.
fn bias(sorted: &[f64], value: f64) -> f64 {
    let below = sorted.partition_point(|x| *x < value);
    let equal = sorted.partition_point(|x| *x <= value) - below;
    let part = (below as f64 + equal as f64 / 2.0) / sorted.len() as f64;
    // All on one side: half a resample away from it.
    let least = 0.5 / sorted.len() as f64;
    Normal::standard().inverse_cdf(part.clamp(least, 1.0 - least))
}

/// Σ d³ / 6 (Σ d²)^{3/2} of the differences d from the mean to the numbers without one cluster each; 0 where those are
/// all the same.
fn acceleration(left_out: &[f64]) -> f64 {
    let mean = left_out.iter().sum::<f64>() / left_out.len() as f64;
    let sum = |power: i32| left_out.iter().map(|x| (mean - x).powi(power)).sum::<f64>();
    let (squares, cubes) = (sum(2), sum(3));
    if squares > 0.0 { cubes / (6.0 * squares.powf(1.5)) } else { 0.0 }
}

fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    if values.len() < 2 { 0.0 } else { (squares / (n - 1.0)).sqrt() }
}
