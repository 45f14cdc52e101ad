//! How often intervals hold the truth, by simulation. Each level is 95 %; of 1,000 samples, 93 to 97 % is three standard
//! errors to either side, of 2,000 four.

use rayon::prelude::*;

use crate::ops::Source;
use crate::stats::perplexity::Perplexity;
use crate::stats::wilson::wilson;
use crate::stats::{Bootstrap, Interval, Intervals, TrueToken, permutation};

/// Of what is quick to sample.
const MANY: u64 = 2000;

fn assert_held(what: &str, share: f64) {
    assert!((0.93..=0.97).contains(&share), "{what}: {share}");
}

/// The part of `samples` for which `holds`.
fn share(samples: u64, holds: impl Fn(u64) -> bool + Sync) -> f64 {
    let held = (0..samples).into_par_iter().filter(|seed| holds(*seed)).count();
    held as f64 / samples as f64
}

/// The parts of `samples` whose percentile and `BCa` intervals hold `truth`.
fn shares(samples: u64, truth: f64, intervals: impl Fn(u64) -> Intervals + Sync) -> [f64; 2] {
    let found: Vec<Intervals> = (0..samples).into_par_iter().map(&intervals).collect();
    let share = |held: &dyn Fn(&Intervals) -> bool| {
        found.iter().filter(|found| held(found)).count() as f64 / samples as f64
    };
    [share(&|found| found.percentile.holds(truth)), share(&|found| found.bca.holds(truth))]
}

fn bootstrap(seed: u64) -> Bootstrap {
    Bootstrap { resamples: 800, seed, level: 0.95 }
}

/// Values `exp(a·u + b·v)`, where u is one number for each cluster and v one for each value: skewed, as divergences are,
/// and alike within a cluster.
struct Skewed {
    clusters: usize,
    size: usize,
    between: f64,
    within: f64,
}

impl Skewed {
    fn sample(&self, seed: u64) -> (Vec<f64>, Vec<u32>) {
        let mut source = Source::new(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let mut found = (Vec::new(), Vec::new());
        for cluster in 0..self.clusters {
            let shared = self.between * source.bell();
            for _ in 0..self.size {
                found.0.push((shared + self.within * source.bell()).exp());
                found.1.push(cluster as u32);
            }
        }
        found
    }

    /// A bell is a sum of twelve uniform numbers less six: E exp(a·bell) = (sinh(a/2)/(a/2))¹².
    fn mean(&self) -> f64 {
        let factor = |a: f64| ((a / 2.0).sinh() / (a / 2.0)).powi(12);
        factor(self.between) * factor(self.within)
    }

    /// A quantile of very many values.
    fn quantile(&self, q: f64) -> f64 {
        let mut source = Source::new(99);
        let values =
            (0..2_000_000).map(|_| self.between * source.bell() + self.within * source.bell());
        let mut values: Vec<f64> = values.collect();
        let at = (q * values.len() as f64) as usize;
        values.select_nth_unstable_by(at, f64::total_cmp).1.exp()
    }
}

#[test]
fn means_of_clustered_skewed_values_are_held() {
    for (clusters, size) in [(12, 30), (40, 12), (100, 8)] {
        let skewed = Skewed { clusters, size, between: 0.3, within: 0.6 };
        let truth = skewed.mean();
        let [percentile, bca] = shares(MANY, truth, |seed| {
            let (values, of) = skewed.sample(seed);
            bootstrap(seed).mean(&values, &of).unwrap()
        });
        assert_held(&format!("percentile, {clusters} clusters"), percentile);
        assert_held(&format!("BCa, {clusters} clusters"), bca);
    }
}

#[test]
fn to_ignore_clusters_is_seen() {
    let skewed = Skewed { clusters: 40, size: 12, between: 0.3, within: 0.6 };
    let truth = skewed.mean();
    let held = share(300, |seed| {
        let (values, _) = skewed.sample(seed);
        let alone: Vec<u32> = (0..values.len() as u32).collect();
        bootstrap(seed).mean(&values, &alone).unwrap().bca.holds(truth)
    });
    assert!(held < 0.9, "{held}");
}

#[test]
fn a_high_quantile_is_held() {
    let skewed = Skewed { clusters: 60, size: 100, between: 0.2, within: 0.8 };
    let truth = skewed.quantile(0.99);
    let [percentile, bca] = shares(1000, truth, |seed| {
        let (values, of) = skewed.sample(seed);
        let bootstrap = Bootstrap { resamples: 1000, ..bootstrap(seed) };
        bootstrap.quantile(&values, &of, 0.99).unwrap()
    });
    assert_held("percentile", percentile);
    assert_held("BCa", bca);
}

/// Whether each of `size` positions of each of `clusters` agrees; a cluster's chance is uniform in 0.9 ± `spread`.
fn agreements(seed: u64, clusters: u32, size: usize, spread: f64) -> (Vec<f64>, Vec<u32>) {
    let mut source = Source::new(seed.wrapping_mul(0x0fed_cba9_8765_4321));
    let mut found = (Vec::new(), Vec::new());
    for cluster in 0..clusters {
        let chance = 0.9 + spread * (2.0 * source.uniform() - 1.0);
        for _ in 0..size {
            found.0.push(f64::from(u8::from(source.uniform() < chance)));
            found.1.push(cluster);
        }
    }
    found
}

#[test]
fn agreement_is_held_by_cluster() {
    let held = share(MANY, |seed| {
        let (agrees, of) = agreements(seed, 50, 20, 0.1);
        bootstrap(seed).mean(&agrees, &of).unwrap().bca.holds(0.9)
    });
    assert_held("agreement", held);
}

#[test]
fn shares_of_independent_positions_are_held_by_wilson() {
    let held = share(MANY, |seed| {
        let (agrees, _) = agreements(seed, 1, 400, 0.0);
        wilson(agrees.iter().sum::<f64>() as u64, 400, 0.95).unwrap().holds(0.9)
    });
    assert_held("wilson", held);
}

/// The coverage of Wilson's interval at a true share, summed over all outcomes.
#[test]
fn wilson_is_right_on_average_over_shares() {
    let coverage = |n: u64, p: f64| -> f64 {
        let mut chance = (1.0 - p).powi(n as i32);
        let mut sum = 0.0;
        for hits in 0..=n {
            sum += if wilson(hits, n, 0.95).unwrap().holds(p) { chance } else { 0.0 };
            chance *= (n - hits) as f64 / (hits + 1) as f64 * p / (1.0 - p);
        }
        sum
    };
    for n in [20, 64, 256] {
        // The interval is symmetric in hits and misses.
        let shares = (1..=100).map(|i| f64::from(i) / 200.0);
        let mean = shares.map(|p| coverage(n, p)).sum::<f64>() / 100.0;
        assert_held(&format!("wilson, {n}"), mean);
    }
}

#[test]
fn perplexity_ratios_are_held() {
    let truth = 0.02f64.exp();
    let held = share(MANY, |seed| {
        let mut source = Source::new(seed.wrapping_mul(0x5555_1234_9876_abcd));
        let (mut tokens, mut of) = (Vec::new(), Vec::new());
        for cluster in 0..25 {
            let shared = 0.05 * source.bell();
            for _ in 0..40 {
                let teacher = 4.0 + 2.0 * source.bell();
                let student = teacher + 0.02 + shared + 0.3 * source.bell();
                tokens.push(TrueToken {
                    id: 0,
                    nll_teacher: teacher,
                    nll_student: student,
                    delta_p: 0.0,
                });
                of.push(cluster);
            }
        }
        let found = Perplexity::of(&tokens, &of, 0.95);
        assert!(found.correlation.unwrap() > 0.95);
        let Interval { low, high } = found.ratio_interval.unwrap();
        // Independent errors of two perplexities of e⁴ would give ± 13 %.
        high - low < 0.1 && low <= truth && truth <= high
    });
    assert_held("perplexity ratio", held);
}

#[test]
fn a_permutation_test_rejects_one_true_null_in_twenty() {
    let rejected = share(MANY, |seed| {
        let mut source = Source::new(seed.wrapping_mul(0x7777_1234_9876_abcd));
        let of: Vec<u32> = (0..200).map(|i| i / 10).collect();
        let shared: Vec<f64> = (0..20).map(|_| source.bell()).collect();
        let a: Vec<f64> = of.iter().map(|c| shared[*c as usize] + source.bell()).collect();
        permutation::paired(&a, &[0.0; 200], &of, 400, seed).unwrap().p_value <= 0.05
    });
    assert!((0.03..=0.07).contains(&rejected), "{rejected}");
}
