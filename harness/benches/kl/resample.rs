//! How long intervals take.

use std::time::Instant;

use mlx_parity::stats::{Bootstrap, Position, Summary, SummaryOptions, TrueToken};

const CLUSTERS: usize = 100;

/// Prints the times of 10,000 resamples over 100 clusters.
pub fn print() {
    for tokens in [100_000, 10_000_000] {
        let clusters: Vec<u32> = (0..tokens).map(|at| (at * CLUSTERS / tokens) as u32).collect();
        let values: Vec<f64> = (0..tokens).map(|at| skewed(at as u64)).collect();
        let bootstrap = Bootstrap::default();
        // The bar is for 100,000 tokens; a hundred times as many show how it grows.
        let wanted = if tokens == 100_000 { "   0.5 s" } else { "" };
        let what = format!("10,000 resamples, {CLUSTERS} clusters, {tokens} tokens in all");
        row(&format!("{what}: mean"), wanted, || bootstrap.mean(&values, &clusters).is_some());
        row(&format!("{what}: p99"), wanted, || {
            bootstrap.quantile(&values, &clusters, 0.99).is_some()
        });
        if tokens == 100_000 {
            let positions: Vec<Position> = values.iter().map(|kl| position(*kl)).collect();
            let options = SummaryOptions::default();
            row(&format!("{what}: whole summary"), wanted, || {
                Summary::of(&positions, &clusters, &options).kl_p99.is_some()
            });
        }
    }
}

fn row(what: &str, wanted: &str, work: impl Fn() -> bool) {
    let start = Instant::now();
    assert!(work(), "no interval");
    println!("{what:<68}{:>8.3} s{wanted}", start.elapsed().as_secs_f64());
}

/// A skewed number of each index.
fn skewed(at: u64) -> f64 {
    let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 11) as f64 / (1u64 << 53) as f64).powi(8)
}

fn position(kl: f64) -> Position {
    Position {
        kl,
        reverse_kl: kl,
        total_variation: Some(kl),
        entropy_teacher: 1.0,
        entropy_student: 1.0,
        margin_teacher: kl * 10.0,
        top1_teacher: 0,
        top1_student: u32::from(kl > 0.9),
        agree: kl <= 0.9,
        top_k_overlap: 1.0,
        true_token: Some(TrueToken {
            id: 0,
            nll_teacher: 2.0,
            nll_student: 2.0 + kl,
            delta_p: -kl,
        }),
    }
}
