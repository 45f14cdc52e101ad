//! Teachers in the store.

use mlx_parity::{
    kl::verdict::Outcome,
    store::{Claim, DEFAULT_BUDGET, Store},
};
use mlx_parity_tensor::HostTensor;

use super::*;

fn run<'a>(student: &'a str, text: &'a str) -> Vec<&'a str> {
    vec!["--teacher", "glassllm-f32", "--student", student, "--text", text, "--window", "128"]
}

/// The digest of the store's one entry.
fn entry(bench: &Bench) -> String {
    let files = fs::read_dir(bench.path("store")).unwrap().flatten();
    let names: Vec<_> = files.map(|file| file.file_name().into_string().unwrap()).collect();
    let [one] = names.iter().filter(|name| name.len() == 64).collect::<Vec<_>>()[..] else {
        panic!("wanted one entry: {names:?}")
    };
    one.clone()
}

#[test]
fn a_stored_teacher_gives_the_numbers_of_the_engine() {
    let bench = Bench::new();
    let text = bench.text(800);
    let run = run("glassllm-4bit", &text);
    let wanted = bench.report(&run, HELD);
    let keep = [&run[..], &["--keep-teacher"]].concat();
    assert_eq!(bench.report(&keep, HELD).summary, wanted.summary);
    let hit = bench.report(&keep, HELD);
    assert!(hit.notes.iter().any(|note| note.contains("from the store")), "{:?}", hit.notes);
    assert_eq!(hit.summary, wanted.summary);
    let lane = &hit.control[0];
    assert_eq!(lane.equal_bits as u64, lane.summary.positions, "stored bits, computed once more");
    // By name: the tokens, windows and calls are those it was stored with.
    let teacher = format!("store:{}", &entry(&bench)[..12]);
    let named = bench.report(&["--teacher", &teacher, "--student", "glassllm-4bit"], HELD);
    assert_eq!(named.summary, wanted.summary);
    assert_eq!(named.control[0].how, "read again from the store");
}

#[test]
fn a_stored_teacher_is_of_its_own_tokens_and_windows_only() {
    let bench = Bench::new();
    let text = bench.text(800);
    bench.run(&[&run("glassllm-4bit", &text)[..], &["--keep-teacher"]].concat()).expect(HELD);
    let teacher = format!("store:{}", entry(&bench));
    let by_name = ["--teacher", &teacher, "--student", "glassllm-4bit"];
    for (more, wanted) in [
        (["--window", "64"], "has windows of 128"),
        (["--score", "second-half"], "has other positions on file"),
        (["--max-tokens", "9"], "logits on file are of all their tokens"),
        (["--text", "README.md"], "token ids differ"),
    ] {
        let ran = bench.run(&[&by_name[..], &more].concat()).expect(USAGE);
        assert!(ran.stderr.contains(wanted), "{}", ran.stderr);
    }
    let ran = bench.run(&["--teacher", "store:ffff", "--student", "glassllm-4bit"]).expect(USAGE);
    assert!(ran.stderr.contains("0 entries"), "{}", ran.stderr);
}

#[test]
fn a_flipped_bit_of_the_store_exits_101() {
    let bench = Bench::new();
    let text = bench.text(500);
    bench.run(&[&run("glassllm-4bit", &text)[..], &["--keep-teacher"]].concat()).expect(HELD);
    let name = entry(&bench);
    let path = bench.path("store").join(&name).join("logits.zst");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let teacher = format!("store:{name}");
    let ran = bench.run(&["--teacher", &teacher, "--student", "glassllm-4bit"]).expect(GOLDEN);
    assert!(ran.stderr.contains("does not match its checksum"), "{}", ran.stderr);
}

/// A teacher of another machine is a lane of its own, found in the store; so is one that is named.
#[test]
fn the_teacher_of_another_machine_is_a_control_lane() {
    let bench = Bench::new();
    let text = bench.text(500);
    let run = run("glassllm-4bit", &text);
    bench.run(&[&run[..], &["--keep-teacher"]].concat()).expect(HELD);
    let store = Store::open(bench.path("store"), DEFAULT_BUDGET).unwrap();
    let mut ours = store.get(&entry(&bench)).unwrap();
    let mut key = ours.key().clone();
    key.fingerprint.mlx = "0.0.1".to_owned();
    let Claim::Miss(mut writer) = store.claim(&key).unwrap() else { panic!("it is there") };
    let mut logits = ours.rows(0..key.rows).unwrap().into_bytes();
    // The largest of the first position is a little larger there.
    let values = logits[..key.vocab * 4].as_chunks_mut::<4>().0;
    let largest = values.iter_mut().max_by(|a, b| value(**a).total_cmp(&value(**b))).unwrap();
    *largest = (value(*largest) + 0.25).to_le_bytes();
    writer.append(&HostTensor::new(key.dtype, [key.rows, key.vocab], logits).unwrap()).unwrap();
    drop(writer.finish().unwrap());
    let report = bench.report(&[&run[..], &["--max-mean", "1e-9"]].concat(), USAGE);
    let lane = report.control.last().unwrap();
    assert!(lane.name.starts_with("teacher beside store:") && lane.how.contains("mlx-0.0.1-cpu"));
    assert_eq!(lane.equal_bits as u64 + 1, lane.summary.positions);
    assert!(lane.summary.kl.max > 0.0 && lane.summary.agreement.agree == lane.summary.positions);
    let check = &report.verdict.checks[0];
    assert_eq!((check.floor, check.outcome), (lane.summary.kl.mean, Outcome::BelowFloor));
}

fn value(bytes: [u8; 4]) -> f32 {
    f32::from_le_bytes(bytes)
}

#[test]
fn changed_weights_never_hit() {
    let bench = Bench::new();
    let text = bench.text(500);
    let folder = bench.copy_of("glassllm-f32");
    let teacher = folder.display().to_string();
    let run =
        ["--teacher", &teacher, "--student", "glassllm-f32", "--text", &text, "--keep-teacher"];
    assert_eq!(bench.report(&run, HELD).summary.kl.max, 0.0);
    let weights = folder.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    // The lowest bit of the last value's exponent.
    let at = bytes.len() - 2;
    bytes[at] ^= 0x80;
    fs::write(&weights, bytes).unwrap();
    let changed = bench.report(&run, HELD);
    assert!(changed.notes.iter().all(|note| !note.contains("from the store")));
    assert!(changed.summary.kl.max > 0.0);
}
