//! Dumps of another engine.

use std::collections::BTreeMap;

use mlx_parity::stats::Side;
use mlx_parity_tensor::{HostTensor, safetensors};

use super::*;

const FACTS: &str = "glassllm-f32";

/// Two small dumps of the same ids, with these logits.
fn dump(bench: &Bench, name: &str, vocab: usize, logits: &[f32]) -> String {
    let rows = logits.len() / vocab;
    let ids: Vec<u32> = (0..rows as u32).map(|id| id % vocab as u32).collect();
    let logits = HostTensor::from_f32([rows, vocab], logits).unwrap();
    let ids = HostTensor::from_u32([rows], &ids).unwrap();
    let path = bench.path(name);
    let tensors = [("logits".to_owned(), &logits), ("ids".to_owned(), &ids)];
    safetensors::write(&path, tensors, &BTreeMap::new()).unwrap();
    path.display().to_string()
}

#[test]
fn the_engine_is_at_0_from_a_dump_of_mlx_lm() {
    let bench = Bench::new();
    let ids = bench.ids(&encoded(&model(FACTS), 600));
    let theirs = bench.path("theirs.safetensors").display().to_string();
    let folder = model(FACTS).display().to_string();
    python("mlx_lm_dump.py", &[folder.as_str(), &ids, &theirs]);
    let report = bench.report(&["--teacher", &theirs, "--student", FACTS], HELD);
    assert_eq!(report.summary.kl.max, 0.0);
    assert_eq!(report.summary.positions as usize, report.text.tokens - 1);
    let lanes: Vec<_> = report.control.iter().map(|lane| lane.how.as_str()).collect();
    assert_eq!(lanes, ["read again from the file", "computed again in a fresh process"]);
    let beside = ["--teacher", FACTS, "--student", "glassllm-8bit", "--ids", &ids];
    let report = bench.report(&[&beside[..], &["--beside", &theirs]].concat(), HELD);
    let lane = report.control.last().unwrap();
    assert_eq!((lane.how.as_str(), lane.summary.kl.max), ("computed elsewhere", 0.0));
    // With the ids named as well, they have to be the dump's.
    let named = ["--teacher", &theirs, "--student", FACTS, "--ids", &ids];
    bench.run(&named).expect(HELD);
    let ran = bench.run(&[&named[..5], &[&bench.ids(&[1, 2, 3])]].concat()).expect(USAGE);
    assert!(ran.stderr.contains("token ids differ"), "{}", ran.stderr);
}

#[test]
fn nan_and_infinite_logits_are_counted_and_located_and_fail() {
    let bench = Bench::new();
    let good: Vec<f32> = (0..40 * 8).map(|x| ((x * 7) % 13) as f32).collect();
    let mut bad = good.clone();
    (bad[3 * 8 + 5], bad[20 * 8]) = (f32::NAN, f32::NEG_INFINITY);
    let (good, bad) =
        (dump(&bench, "a.safetensors", 8, &good), dump(&bench, "b.safetensors", 8, &bad));
    let report = bench.report(&["--teacher", &good, "--student", &bad], MISMATCH);
    assert_eq!((report.verdict.nonfinite, report.summary.unscored), (2, 2));
    assert_eq!(report.summary.positions, 37, "the others are scored");
    let found: Vec<_> = report
        .nonfinite
        .iter()
        .map(|found| (found.position, found.token, found.side, found.value.as_str()))
        .collect();
    assert_eq!(found, [(3, 5, Side::Student, "NaN"), (20, 0, Side::Student, "-inf")]);
    let ran = bench.run(&["--teacher", &good, "--student", &bad]).expect(MISMATCH);
    assert!(ran.stdout.contains("student logits[3, 5] = NaN"), "{}", ran.stdout);
    assert!(ran.stdout.contains("FAIL  2 logits are NaN or infinite"), "{}", ran.stdout);
    // The only two lines of two files: nothing is left to compare, and that is no pass.
    let nothing = dump(&bench, "c.safetensors", 8, &[f32::NAN; 16]);
    bench.run(&["--teacher", &nothing, "--student", &nothing]).expect(MISMATCH);
}

#[test]
fn vocabularies_that_differ_are_refused() {
    let bench = Bench::new();
    let a = dump(&bench, "a.safetensors", 8, &[0.5; 8 * 4]);
    let b = dump(&bench, "b.safetensors", 9, &[0.5; 9 * 4]);
    let ran = bench.run(&["--teacher", &a, "--student", &b]).expect(USAGE);
    let wanted = "the vocabularies differ: the teacher's are 8 tokens, the student's 9 tokens";
    assert!(ran.stderr.contains(wanted), "{}", ran.stderr);
    let ran = bench.run(&["--teacher", &a, "--student", FACTS]).expect(USAGE);
    assert!(ran.stderr.contains("the vocabularies differ"), "{}", ran.stderr);
}

#[test]
fn a_dump_that_is_none_is_refused() {
    let bench = Bench::new();
    let path = bench.path("x.safetensors");
    fs::write(&path, b"GGUF").unwrap();
    let path = path.display().to_string();
    let ran = bench.run(&["--teacher", &path, "--student", FACTS]).expect(USAGE);
    assert!(ran.stderr.contains("x.safetensors"), "{}", ran.stderr);
}
