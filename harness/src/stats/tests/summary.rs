//! Summaries, intervals and tests beside numbers found by hand or by plainer means.

use approx::assert_abs_diff_eq;
use proptest::prelude::*;

use super::naive::bells;
use crate::stats::clusters::Clusters;
use crate::stats::power::{minimum_detectable, rarest_seen};
use crate::stats::tail::Sorted;
use crate::stats::wilson::wilson;
use crate::stats::{
    Bootstrap, Interval, Position, Summary, SummaryOptions, TrueToken, permutation, profile,
    quantile,
};

fn position(kl: f64, margin: f64, agree: bool) -> Position {
    Position {
        kl,
        reverse_kl: 2.0 * kl,
        total_variation: Some(kl / 4.0),
        entropy_teacher: 1.0,
        entropy_student: 3.0,
        margin_teacher: margin,
        top1_teacher: 1,
        top1_student: 1 + u32::from(!agree),
        agree,
        top_k_overlap: 0.5,
        true_token: Some(TrueToken {
            id: 7,
            nll_teacher: 1.0,
            nll_student: 1.0 + kl,
            delta_p: -kl,
        }),
    }
}

fn options() -> SummaryOptions {
    SummaryOptions {
        resamples: 500,
        noise_margin: 0.5,
        profile_bins: 2,
        ..SummaryOptions::default()
    }
}

#[test]
fn a_summary_of_four_positions() {
    let positions = [
        position(0.0, 1.0, true),
        position(0.4, 0.1, false),
        position(0.2, 2.0, true),
        position(0.2, 0.6, false),
    ];
    let found = Summary::of(&positions, &[0, 0, 1, 1], &options());
    assert_eq!((found.positions, found.unscored, found.clusters), (4, 0, 2));
    assert_abs_diff_eq!(found.kl.mean, 0.2, epsilon = 1e-15);
    assert_abs_diff_eq!(found.kl.median, 0.2, epsilon = 1e-15);
    assert_abs_diff_eq!(found.kl.p95, 0.2 + 0.85 * 0.2, epsilon = 1e-15);
    assert_eq!((found.kl.max, found.kl.max_at), (0.4, Some(1)));
    assert_abs_diff_eq!(found.reverse_kl.mean, 0.4, epsilon = 1e-15);
    assert_abs_diff_eq!(found.total_variation.unwrap().mean, 0.05, epsilon = 1e-15);
    assert_eq!((found.agreement.agree, found.agreement.of), (2, 4));
    assert_eq!((found.decided.agree, found.decided.of), (2, 3));
    assert_eq!(
        (found.top_k_overlap, found.entropy_teacher, found.entropy_student),
        (0.5, 1.0, 3.0)
    );
    let delta = found.delta_p.unwrap();
    assert_abs_diff_eq!(delta.mean, -0.2, epsilon = 1e-15);
    assert_abs_diff_eq!(delta.rms, 0.06f64.sqrt(), epsilon = 1e-15);
    let perplexity = found.perplexity.unwrap();
    assert_abs_diff_eq!(perplexity.ratio, 0.2f64.exp(), epsilon = 1e-15);
    assert_abs_diff_eq!(perplexity.student / perplexity.teacher, perplexity.ratio, epsilon = 1e-14);
    // Both clusters have the same mean.
    assert_abs_diff_eq!(perplexity.log_ratio_error.unwrap(), 0.0, epsilon = 1e-15);
    assert_eq!(perplexity.correlation, None);
    let places: Vec<_> =
        found.profile.iter().map(|bin| (bin.from, bin.to, bin.positions)).collect();
    assert_eq!(places, [(0, 1, 2), (1, 2, 2)]);
    assert_abs_diff_eq!(found.profile[0].mean, 0.1, epsilon = 1e-15);
    assert_eq!((found.profile[1].max, found.profile[1].agree), (0.4, 0));
}

#[test]
fn positions_without_a_score_are_counted_and_left_out() {
    let mut lost = position(f64::NAN, f64::NAN, false);
    (lost.reverse_kl, lost.true_token, lost.total_variation) = (f64::NAN, None, None);
    let positions = [lost, position(0.5, 1.0, true), lost, position(0.1, 1.0, true)];
    let found = Summary::of(&positions, &[0, 0, 1, 2], &options());
    assert_eq!((found.positions, found.unscored, found.clusters), (2, 2, 2));
    assert_eq!((found.kl.max_at, found.agreement.of, found.decided.of), (Some(1), 2, 2));
    assert_abs_diff_eq!(found.kl.mean, 0.3, epsilon = 1e-15);
    assert!(found.perplexity.is_some());
    let none = Summary::of(&positions[..1], &[0], &options());
    assert_eq!((none.positions, none.unscored, none.kl_mean), (0, 1, None));
    assert!(none.kl.mean.is_nan() && none.agreement.wilson.is_none());
    let text = serde_json::to_string(&none).unwrap();
    assert!(serde_json::from_str::<Summary>(&text).unwrap().kl.mean.is_nan());
}

#[test]
fn equal_paths_have_no_spread() {
    let positions: Vec<Position> = (0..60).map(|_| position(0.0, 1.0, true)).collect();
    let clusters: Vec<u32> = (0..60).map(|i| i / 10).collect();
    let found = Summary::of(&positions, &clusters, &options());
    let nothing = Interval { low: 0.0, high: 0.0 };
    let mean = found.kl_mean.unwrap();
    assert_eq!((mean.percentile, mean.bca, mean.error), (nothing, nothing, 0.0));
    assert_eq!(found.kl_p99.unwrap().bca, nothing);
    let agreement = found.agreement;
    assert_eq!((agreement.share(), agreement.wilson.unwrap().high), (1.0, 1.0));
    assert!(agreement.wilson.unwrap().low > 0.93 && agreement.wilson.unwrap().low < 0.95);
    assert_eq!(agreement.bootstrap.unwrap().bca, Interval { low: 1.0, high: 1.0 });
    assert_eq!(found.detectable_kl, Some(0.0));
}

#[test]
fn a_summary_survives_json_and_does_not_depend_on_threads() {
    let kls = bells(4, 300, 1.0);
    let positions: Vec<Position> =
        kls.iter().map(|x| position(x.exp() / 100.0, x.abs(), *x < 1.0)).collect();
    let clusters: Vec<u32> = (0..300).map(|i| i / 7).collect();
    let found = Summary::of(&positions, &clusters, &options());
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), found);
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(alone.install(|| Summary::of(&positions, &clusters, &options())), found);
    let other = SummaryOptions { seed: 1, ..options() };
    assert_ne!(Summary::of(&positions, &clusters, &other).kl_mean, found.kl_mean);
}

#[test]
fn the_profile_covers_every_place_once() {
    let positions: Vec<Position> = (0..23).map(|i| position(f64::from(i), 1.0, true)).collect();
    // Clusters of 10, 10 and 3, interleaved at the end.
    let clusters: Vec<u32> = (0..20).map(|i| i / 10).chain([2, 2, 2]).collect();
    let found = profile(&positions, &clusters, 4);
    let places: Vec<_> = found.iter().map(|bin| (bin.from, bin.to, bin.positions)).collect();
    assert_eq!(places, [(0, 3, 9), (3, 6, 6), (6, 9, 6), (9, 10, 2)]);
    assert_eq!(found[3].mean, f64::midpoint(9.0, 19.0));
    assert_eq!(profile(&[], &[], 4), []);
}

#[test]
fn intervals_of_a_mean_come_from_the_draws() {
    // Three clusters of one value: 27 equal draws, whose deviation is √(Σ(x − x̄)²/3)/√3.
    let bootstrap = Bootstrap { resamples: 40_000, seed: 3, level: 0.95 };
    let found = bootstrap.mean(&[1.0, 2.0, 6.0], &[5, 9, 7]).unwrap();
    assert_abs_diff_eq!(found.error, (14.0f64 / 3.0).sqrt() / 3f64.sqrt(), epsilon = 0.01);
    // Widened for three clusters to all that can be drawn.
    assert_eq!(found.percentile, Interval { low: 1.0, high: 6.0 });
    // Clusters count whole: sizes 1 and 3.
    let found = bootstrap.mean(&[8.0, 0.0, 0.0, 0.0], &[0, 1, 1, 1]).unwrap();
    let draws = [8.0, 2.0, 2.0, 0.0f64];
    let squares: f64 = draws.iter().map(|x| (x - 3.0).powi(2)).sum();
    assert_abs_diff_eq!(found.error, (squares / 4.0).sqrt(), epsilon = 0.02);
}

#[test]
fn many_clusters_give_the_normal_interval() {
    let values = bells(11, 2000, 1.0);
    let clusters: Vec<u32> = (0..2000).collect();
    let found = Bootstrap::default().mean(&values, &clusters).unwrap();
    let mean = values.iter().sum::<f64>() / 2000.0;
    let error = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2000.0 / 2000.0).sqrt();
    for interval in [found.percentile, found.bca] {
        assert_abs_diff_eq!(interval.low, mean - 1.96 * error, epsilon = 0.06 * error);
        assert_abs_diff_eq!(interval.high, mean + 1.96 * error, epsilon = 0.06 * error);
    }
    assert_abs_diff_eq!(found.error, error, epsilon = 0.02 * error);
}

#[test]
fn bca_leans_where_the_values_do() {
    let values: Vec<f64> = bells(12, 60, 1.0).iter().map(|x| x.exp()).collect();
    let clusters: Vec<u32> = (0..60).collect();
    let found = Bootstrap::default().mean(&values, &clusters).unwrap();
    assert!(found.bca.low > found.percentile.low && found.bca.high > found.percentile.high);
    let mirrored: Vec<f64> = values.iter().map(|x| -x).collect();
    let other = Bootstrap::default().mean(&mirrored, &clusters).unwrap();
    assert_abs_diff_eq!(other.bca.low, -found.bca.high, epsilon = 1e-9);
}

#[test]
fn too_little_gives_no_interval() {
    let bootstrap = Bootstrap::default();
    assert_eq!(bootstrap.mean(&[1.0, 2.0], &[3, 3]), None);
    assert_eq!(bootstrap.mean(&[1.0, 2.0], &[3]), None);
    assert_eq!(bootstrap.mean(&[1.0, f64::NAN], &[3, 4]), None);
    assert_eq!(bootstrap.quantile(&[], &[], 0.99), None);
    assert_eq!(wilson(0, 0, 0.95), None);
    assert_eq!(wilson(2, 1, 0.95), None);
    assert_eq!(permutation::paired(&[], &[], &[], 10, 0), None);
}

#[test]
fn permutations_by_hand() {
    // Three clusters above: of eight patterns two are as far out.
    let found = permutation::paired(&[1.0, 2.0, 3.0], &[0.0; 3], &[0, 1, 2], 100, 0).unwrap();
    assert_eq!(
        (found.difference, found.p_value, found.patterns, found.exact),
        (2.0, 0.25, 8, true)
    );
    let found = permutation::paired(&[5.0, 1.0], &[1.0, 5.0], &[0, 1], 100, 0).unwrap();
    assert_eq!((found.difference, found.p_value), (0.0, 1.0));
    // Rounding of 0.1 + 0.2 hides no equal pattern.
    let found = permutation::paired(&[0.1, 0.2, 0.3], &[0.0; 3], &[2, 1, 0], 100, 0).unwrap();
    assert_eq!(found.p_value, 0.25);
    let many: Vec<u32> = (0..70).collect();
    let found = permutation::paired(&[1.0; 70], &[0.0; 70], &many, 999, 0).unwrap();
    assert_eq!((found.p_value, found.exact), (0.001, false));
}

#[test]
fn power_has_its_closed_form() {
    assert_abs_diff_eq!(minimum_detectable(1.0, 0.95, 0.8), 2.801_585_218, epsilon = 1e-8);
    assert_abs_diff_eq!(rarest_seen(1, 0.8), 0.8, epsilon = 1e-15);
    assert_abs_diff_eq!(rarest_seen(1000, 0.95), 2.991_246e-3, epsilon = 1e-8);
    assert!(rarest_seen(0, 0.8).is_nan());
}

proptest! {
    #[test]
    fn wilsons_bounds_solve_its_equation(n in 1u64..5000, part in 0.0f64..1.0, level in 0.5f64..0.999) {
        let hits = (part * n as f64) as u64;
        let share = hits as f64 / n as f64;
        let found = wilson(hits, n, level).unwrap();
        prop_assert!(0.0 <= found.low && found.holds(share) && found.high <= 1.0);
        // (p̂ − p)² = z² p (1 − p) / n at both.
        let z_squared = |p: f64| (share - p).powi(2) * n as f64 / (p * (1.0 - p));
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b;
        prop_assert!(hits == 0 || hits == n || near(z_squared(found.low), z_squared(found.high)));
        let wider = wilson(hits, n, f64::midpoint(level, 1.0)).unwrap();
        prop_assert!(wider.low <= found.low && found.high <= wider.high);
    }

    #[test]
    fn weighted_quantiles_are_those_of_the_repeated_values(
        values in proptest::collection::vec((0u8..40, 0u32..6), 1..400),
        weights in proptest::collection::vec(0u32..4, 6),
        q in 0.0f64..=1.0,
    ) {
        let labels: Vec<u32> = values.iter().map(|(_, label)| *label).collect();
        let clusters = Clusters::new(labels.iter().copied());
        let numbers: Vec<f64> = values.iter().map(|(x, _)| f64::from(*x)).collect();
        let weight = |at: usize| weights[clusters.of[at] as usize] as usize;
        let mut repeated: Vec<f64> =
            (0..numbers.len()).flat_map(|at| std::iter::repeat_n(numbers[at], weight(at))).collect();
        repeated.sort_by(f64::total_cmp);
        let found = Sorted::new(&numbers, &clusters).quantile(&weights[..clusters.count], q);
        let wanted = quantile::of_sorted(&repeated, q);
        prop_assert!(found == wanted || found.is_nan() && wanted.is_nan(), "{} {}", found, wanted);
    }

    #[test]
    fn the_robust_error_of_single_values_is_the_usual_one(
        values in proptest::collection::vec(-1e3f64..1e3, 2..200),
    ) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let usual = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
        let found = Clusters::new(0..values.len() as u32).mean_error(&values).unwrap();
        prop_assert!((found - usual).abs() <= 1e-12 * usual.max(1.0));
    }
}
