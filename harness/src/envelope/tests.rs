//! Verdicts on made-up positions.

use super::*;

const BOUNDS: Bounds = Bounds { max_mean: 1e-3, max_p99: 1e-2, min_agreement: 0.9 };
const PROMPTS: u32 = 4;
const EACH: u32 = 64;

fn position(kl: f64, agree: bool) -> Position {
    Position {
        kl,
        reverse_kl: kl,
        total_variation: None,
        entropy_teacher: 1.0,
        entropy_student: 1.0,
        margin_teacher: 0.5,
        top1_teacher: 1,
        top1_student: if agree { 1 } else { 2 },
        agree,
        top_k_overlap: 1.0,
        true_token: None,
    }
}

fn clusters() -> Vec<u32> {
    (0..PROMPTS).flat_map(|prompt| std::iter::repeat_n(prompt, EACH as usize)).collect()
}

/// Positions whose KL is around `kl`, a little other in each prompt.
fn around(kl: f64) -> Vec<Position> {
    let of = |at: u32| kl * (1.0 + 0.1 * f64::from(at / EACH) + 0.01 * f64::from(at % EACH));
    (0..PROMPTS * EACH).map(|at| position(of(at), true)).collect()
}

fn controls(again: f64, split: f64) -> Controls {
    Controls { again: around(again), split: around(split) }
}

fn judged(positions: &[Position], controls: &Controls, bounds: Bounds) -> EnvelopeReport {
    judge(positions, controls, &clusters(), bounds)
}

#[test]
fn within_all_bounds_is_held_and_says_by_how_much() {
    let report = judged(&around(1e-4), &controls(0.0, 1e-7), BOUNDS);
    assert!(report.held(), "{:?} {:?}", report.refused, report.broken);
    assert_eq!((report.positions, report.prompts), (256, 4));
    assert!(report.excess.low < report.kl.mean && report.kl.mean < report.excess.high);
    assert_eq!((report.again.mean, report.again.mean_high), (0.0, 0.0));
    let text = report.to_string();
    assert!(text.starts_with("KL 1.5e-4 ≤ 1.") && text.ends_with("agree 256/256"), "{text}");
    assert!(text.contains("(control 0, split 1.5e-7)"), "{text}");
}

#[test]
fn the_bound_is_on_the_far_end_of_the_interval() {
    let positions = around(1e-4);
    let report = judged(&positions, &controls(0.0, 0.0), BOUNDS);
    let between = f64::midpoint(report.kl.mean, report.excess.high);
    let bounds = Bounds { max_mean: between, ..BOUNDS };
    let report = judged(&positions, &controls(0.0, 0.0), bounds);
    assert!(report.kl.mean < bounds.max_mean && !report.held());
    assert!(report.broken[0].starts_with("mean KL may be"), "{:?}", report.broken);
}

#[test]
fn each_bound_can_be_broken_alone() {
    let controls = controls(0.0, 0.0);
    let mut tail = around(1e-5);
    (0..4).for_each(|at| tail[at * 64] = position(0.02, true));
    let report = judged(&tail, &controls, BOUNDS);
    assert_eq!(report.broken.len(), 1, "{:?}", report.broken);
    assert!(report.broken[0].starts_with("p99 of KL may be"), "{:?}", report.broken);

    let mut turned = around(1e-5);
    (0..20).for_each(|at| turned[at * 12] = position(1e-5, false));
    let report = judged(&turned, &controls, BOUNDS);
    assert_eq!(report.broken.len(), 1, "{:?}", report.broken);
    assert!(report.broken[0].contains("(236/256)"), "{:?}", report.broken);
}

#[test]
fn what_the_control_does_itself_is_not_held_against_a_composition() {
    // Paths that vary from run to run: the composition adds nothing to that.
    let bounds = Bounds { max_mean: 1e-2, max_p99: 1e-1, ..BOUNDS };
    let report = judged(&around(4e-3), &controls(4e-3, 4e-3), bounds);
    assert!(report.held(), "{:?} {:?}", report.refused, report.broken);
    assert_eq!(report.excess, Interval { low: 0.0, high: 0.0 });
}

#[test]
fn a_bound_below_the_floor_is_refused() {
    for (again, split) in [(0.0, 1e-3), (1e-3, 0.0)] {
        let report = judged(&around(1e-9), &controls(again, split), BOUNDS);
        assert!(!report.held() && report.broken.is_empty());
        assert!(report.refused[0].contains("max-mean = 1e-3"), "{:?}", report.refused);
    }
    let report = judged(&around(1e-9), &controls(0.0, 2e-4), Bounds { max_p99: 1e-4, ..BOUNDS });
    assert!(report.refused[0].contains("max-p99 = 1e-4"), "{:?}", report.refused);
}

#[test]
fn a_share_that_so_few_positions_cannot_show_is_refused() {
    // The lower end for 256 of 256 is 0.985.
    let report =
        judged(&around(1e-9), &controls(0.0, 0.0), Bounds { min_agreement: 0.99, ..BOUNDS });
    assert!(
        report.refused[0].contains("256 decided positions can show, 0.985"),
        "{:?}",
        report.refused
    );
    let report =
        judged(&around(1e-9), &controls(0.0, 0.0), Bounds { min_agreement: 0.98, ..BOUNDS });
    assert!(report.held());
}

#[test]
fn positions_that_rounding_turns_are_not_decided() {
    let mut controls = controls(0.0, 1e-9);
    controls.split[7] = Position { margin_teacher: 0.01, ..position(1e-9, false) };
    let mut positions = around(1e-9);
    for turned in &mut positions[..40] {
        *turned = Position { margin_teacher: 0.01, ..position(1e-9, false) };
    }
    let report = judged(&positions, &controls, BOUNDS);
    assert_eq!(report.noise_margin, 0.01);
    assert_eq!((report.agreement.of, report.decided.of, report.decided.agree), (256, 216, 216));
    assert!(report.held(), "{:?}", report.broken);
}

#[test]
fn a_nan_breaks_the_verdict() {
    let mut positions = around(1e-9);
    positions[100].kl = f64::NAN;
    let report = judged(&positions, &controls(0.0, 0.0), BOUNDS);
    assert!(report.broken.iter().any(|reason| reason.starts_with("1 positions with a NaN")));
    let mut lanes = controls(0.0, 0.0);
    lanes.again[3].kl = f64::NAN;
    assert!(!judged(&around(1e-9), &lanes, BOUNDS).held());
}

#[test]
fn a_report_is_written_and_read_again() {
    let report = judged(&around(1e-4), &controls(0.0, 1e-7), BOUNDS);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<EnvelopeReport>(&text).unwrap(), report);
}

mod strength {
    use super::*;

    fn varied() -> (Vec<u32>, Vec<Position>) {
        let ids = (0..64).collect();
        let top = |at: u32| Position { top1_teacher: at % 20, ..position(0.0, true) };
        (ids, (0..64).map(top).collect())
    }

    fn weaknesses(ids: &[u32], positions: &[Position]) -> Vec<String> {
        let strength = TrajectoryStrength::of(ids, positions, 1024);
        strength.weaknesses().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_text_is_strong_enough() {
        let (ids, positions) = varied();
        assert_eq!(weaknesses(&ids, &positions), [""; 0]);
        let strength = TrajectoryStrength::of(&ids, &positions, 1024);
        assert_eq!((strength.distinct, strength.choices, strength.close), (64, 20, 64));
    }

    #[test]
    fn loops_sureness_noise_and_far_margins_are_weak() {
        let (ids, positions) = varied();
        let looped: Vec<u32> = (0..64).map(|at| at % 15).collect();
        assert_eq!(
            weaknesses(&looped, &positions),
            ["15 distinct ids in 64 positions, wanted at least 16"]
        );
        let with = |change: fn(&mut Position)| {
            let mut positions = positions.clone();
            positions.iter_mut().for_each(change);
            weaknesses(&ids, &positions)
        };
        assert!(with(|p| p.top1_teacher %= 7)[0].starts_with("7 likeliest tokens"));
        assert!(with(|p| p.entropy_teacher = 0.01)[0].starts_with("mean entropy 0.010 nats"));
        assert!(with(|p| p.entropy_teacher = 6.9)[0].starts_with("mean entropy 6.900 nats"));
        assert!(with(|p| p.entropy_teacher = f64::NAN)[0].starts_with("mean entropy NaN"));
        assert!(with(|p| p.margin_teacher = 3.0)[0].starts_with("0 of 64 positions have a margin"));
    }
}
