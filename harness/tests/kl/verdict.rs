//! Thresholds, control lanes, what is printed.

use super::*;
use mlx_parity::kl::verdict::Outcome;

const BOUNDS: [&str; 6] = ["--max-mean", "1e-3", "--max-p99", "0.01", "--min-agreement", "0.99"];

#[test]
fn thresholds_exit_100_on_4_bits_and_0_on_f32() {
    let bench = Bench::new();
    let text = bench.text(1500);
    let run = |student: &'static str| {
        ["--teacher", "glassllm-f32", "--student", student, "--text", &text, "--window", "64"]
    };
    let exact = bench.report(&[&run("glassllm-f32")[..], &BOUNDS].concat(), HELD);
    assert!(exact.verdict.checks.iter().all(|check| check.outcome == Outcome::Held));
    assert_eq!(exact.verdict.checks.len(), 3);
    let packed = bench.report(&[&run("glassllm-4bit")[..], &BOUNDS].concat(), MISMATCH);
    assert!(packed.verdict.checks.iter().all(|check| check.outcome == Outcome::Exceeded));
    for check in &packed.verdict.checks {
        assert!(check.upper.unwrap() >= check.value, "the bound is that of the interval");
    }
    let lanes: Vec<_> = packed.control.iter().map(|lane| lane.name.as_str()).collect();
    assert_eq!(lanes, ["teacher twice", "student twice"]);
}

/// A threshold between the value and its upper bound fails: it is about what may be, not what was seen.
#[test]
fn a_threshold_that_only_the_value_meets_is_not_met() {
    let bench = Bench::new();
    let text = bench.text(1000);
    let run = [
        "--teacher",
        "glassllm-f32",
        "--student",
        "glassllm-8bit",
        "--text",
        &text,
        "--window",
        "64",
    ];
    let plain = bench.report(&run, HELD);
    let (value, upper) = (plain.summary.kl.mean, plain.summary.kl_mean.unwrap());
    let high = upper.percentile.high.max(upper.bca.high);
    assert!(value < high);
    let between = f64::midpoint(value, high).to_string();
    bench.run(&[&run[..], &["--max-mean", &between]].concat()).expect(MISMATCH);
    let above = (high * 1.001).to_string();
    bench.run(&[&run[..], &["--max-mean", &above]].concat()).expect(HELD);
}

#[test]
fn a_threshold_of_one_window_has_blocks_to_stand_on_and_of_one_position_is_refused() {
    let bench = Bench::new();
    let ids = encoded(&model("glassllm-f32"), 900);
    let file = bench.ids(&ids);
    let run = ["--teacher", "glassllm-f32", "--student", "glassllm-f32", "--max-mean", "0.1"];
    let report = bench.report(&[&run[..], &["--ids", &file]].concat(), HELD);
    assert_eq!((report.text.windows, report.clusters.block), (1, Some((ids.len() - 1) / 20)));
    assert!(report.clusters.count >= 20);
    let file = bench.ids(&ids[..5]);
    let ran = bench.run(&[&run[..], &["--ids", &file]].concat()).expect(USAGE);
    assert!(ran.stdout.contains("too few clusters"), "{}", ran.stdout);
}

#[test]
fn people_get_a_table_and_plots() {
    let bench = Bench::new();
    let text = bench.text(500);
    let plots = bench.path("plots");
    let run = ["--teacher", "glassllm-f32", "--composition", "l2:kv4,stock", "--text", &text];
    let ran = bench
        .run(&[&run[..], &["--max-mean", "10", "--plots", plots.to_str().unwrap()]].concat())
        .expect(HELD);
    for wanted in [
        "teacher    glassllm-f32@l1  (f32, ",
        "student    glassllm-f32@l2:kv4,empty,stock  (f32, ",
        "windows of 512, every position, calls of 512",
        "KL, nats   mean ",
        "control    teacher twice, computed again in a fresh process: first ",
        "control    student twice, ",
        "verdict    held  mean KL at most ",
    ] {
        assert!(ran.stdout.contains(wanted), "no `{wanted}` in\n{}", ran.stdout);
    }
    for name in ["kl-by-place.svg", "kl-histogram.svg"] {
        let svg = fs::read_to_string(plots.join(name)).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }
}
