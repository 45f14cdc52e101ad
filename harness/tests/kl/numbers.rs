//! The numbers themselves.

use serde::Deserialize;

use super::*;

const FACTS: &str = "glassllm-f32";

#[test]
fn a_path_beside_itself_is_at_exactly_0_and_agrees_everywhere_ties_included() {
    let bench = Bench::new();
    let text = bench.text(1600);
    let run = ["--teacher", "qwen3-1m", "--student", "qwen3-1m", "--text", &text];
    let report = bench.report(&[&run[..], &["--window", "128"]].concat(), HELD);
    let summary = &report.summary;
    let (kl, agreement) = (&summary.kl, &summary.agreement);
    assert_eq!([kl.mean, kl.median, kl.p99, kl.max, summary.reverse_kl.max], [0.0; 5]);
    assert_eq!((agreement.agree, agreement.of), (summary.positions, summary.positions));
    assert_eq!(summary.positions as usize, report.text.tokens - 1, "no position is dropped");
    let ties: usize = windows(&report)
        .iter()
        .flat_map(|scored| &scored.positions)
        .filter(|position| position.margin_teacher == 0.0)
        .count();
    assert!(ties > 0, "the text has no tie in bf16, so it says nothing of ties");
    assert_eq!(report.control.len(), 1, "both sides are one path");
    let lane = &report.control[0];
    assert_eq!(lane.name, "teacher twice");
    assert_eq!(lane.equal_bits as u64, lane.summary.positions);
    assert!(lane.summary.positions >= 64 && lane.summary.kl.max == 0.0);
}

#[derive(Deserialize)]
struct Oracle {
    kl: Vec<f64>,
    agree: Vec<bool>,
    nll: Vec<f64>,
}

/// mlx-lm computes the logits and NumPy the statistics: no line of ours is in it.
#[test]
fn packed_models_are_where_mlx_lm_and_numpy_in_float64_have_them() {
    let ids = encoded(&model(FACTS), 1200);
    for student in ["glassllm-4bit", "glassllm-8bit"] {
        let bench = Bench::new();
        let file = bench.ids(&ids);
        let run = ["--teacher", FACTS, "--student", student, "--ids", &file, "--window", "200"];
        let report = bench.report(&run, HELD);
        assert_eq!(report.text.call, 200, "mlx-lm takes a window in one call");
        let folders = [FACTS, student].map(|name| model(name).display().to_string());
        let printed = python("mlx_lm_kl.py", &[folders[0].as_str(), &folders[1], &file, "200"]);
        let oracle: Oracle = serde_json::from_str(&printed).unwrap();
        let scored = windows(&report);
        let positions: Vec<_> = scored.iter().flat_map(|scored| &scored.positions).collect();
        assert_eq!((positions.len(), ids.len() - 1), (oracle.kl.len(), oracle.kl.len()));
        for (at, position) in positions.iter().enumerate() {
            let want = oracle.kl[at];
            let off = (position.kl - want).abs();
            assert!(off <= 1e-12 || off <= 1e-9 * want, "{student} {at}: {} {want}", position.kl);
            assert_eq!(position.agree, oracle.agree[at], "{student} {at}");
            let token = position.true_token.unwrap();
            assert!((token.nll_teacher - oracle.nll[at]).abs() <= 1e-9 * oracle.nll[at] + 1e-12);
        }
        let mean = oracle.kl.iter().sum::<f64>() / oracle.kl.len() as f64;
        assert!((report.summary.kl.mean - mean).abs() <= 1e-9 * mean);
        assert!(mean > 1e-6, "{student} is {mean} from f32: it says nothing");
    }
}

#[test]
fn the_second_half_of_windows_is_a_part_of_every_position() {
    let bench = Bench::new();
    let text = bench.text(700);
    let run = ["--teacher", FACTS, "--composition", "l2:kv8", "--text", &text, "--window", "64"];
    let every = bench.report(&[&run[..], &["--score", "every"]].concat(), HELD);
    let every: Vec<_> = windows(&every).into_iter().map(|scored| scored.positions).collect();
    let half = bench.report(&[&run[..], &["--score", "second-half"]].concat(), HELD);
    assert_eq!(half.text.cut.to_string().split(' ').nth(1), Some("score=second-half"));
    for (at, scored) in windows(&half).iter().enumerate() {
        assert_eq!(scored.positions, every[at][32..]);
    }
    assert!(half.summary.kl.mean > 0.0);
}

/// The split into calls picks kernels, so bits may differ; positions and targets may not.
#[test]
fn calls_shorter_than_a_window_score_the_same_positions() {
    let bench = Bench::new();
    let text = bench.text(600);
    let run =
        ["--teacher", FACTS, "--student", "glassllm-8bit", "--text", &text, "--window", "100"];
    let whole = bench.report(&run, HELD);
    let whole = windows(&whole);
    let split = bench.report(&[&run[..], &["--call", "7"]].concat(), HELD);
    assert_eq!(split.text.call, 7);
    for (a, b) in whole.iter().zip(windows(&split)) {
        assert_eq!(a.positions.len(), b.positions.len());
        for (a, b) in a.positions.iter().zip(b.positions) {
            assert_eq!(a.true_token.unwrap().id, b.true_token.unwrap().id);
            assert!((a.kl - b.kl).abs() <= 1e-3 * a.kl + 1e-6, "{} {}", a.kl, b.kl);
        }
    }
}

#[test]
fn documents_do_not_see_each_other() {
    let bench = Bench::new();
    let ids = encoded(&model(FACTS), 400);
    let (a, b) = ids.split_at(ids.len() / 2);
    let run = |file: &str| {
        let run = ["--teacher", FACTS, "--student", "glassllm-4bit", "--ids", file];
        windows(&bench.report(&run, HELD)).concat_positions()
    };
    let path = bench.path("both.json");
    fs::write(&path, serde_json::to_string(&[a, b]).unwrap()).unwrap();
    let both = run(path.to_str().unwrap());
    let alone = [run(&bench.ids(a)), run(&bench.ids(b))].concat();
    assert_eq!(both, alone);
}

/// All positions of some windows.
trait ConcatPositions {
    fn concat_positions(&self) -> Vec<mlx_parity::stats::Position>;
}

impl ConcatPositions for Vec<Scored> {
    fn concat_positions(&self) -> Vec<mlx_parity::stats::Position> {
        self.iter().flat_map(|scored| scored.positions.iter().copied()).collect()
    }
}
