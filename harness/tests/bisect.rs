//! `mlx-parity bisect` on engines made wrong in one place: the place is named. And its dumps, its
//! refusals, its exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;

use mlx_parity_tensor::{HostTensor, safetensors};
use rstest::rstest;
use serde_json::Value;
use support::{PROGRAM, Ran, checkout};

const HELD: i32 = 0;
const USAGE: i32 = 2;
const MISMATCH: i32 = 100;
const CRASHED: i32 = 103;

const IDS: &str = "3,14,159,26,535,89,79,323,84,62,64,33";

fn bisect(arguments: &[&str]) -> Ran {
    let mut command = std::process::Command::new(PROGRAM);
    command.arg("bisect").args(arguments).current_dir(checkout());
    Ran::from(command.output().unwrap())
}

fn report(model: &str, arguments: &[&str], code: i32) -> Value {
    let ran = bisect(&[&[model, "--format", "json"], arguments].concat()).expect(code);
    assert_eq!(ran.stderr, "");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// The outcome's text at a path of keys, or null.
fn text<'a>(report: &'a Value, keys: &str) -> &'a str {
    report.pointer(&format!("/outcome/{keys}")).and_then(Value::as_str).unwrap_or("null")
}

/// Least and greatest index, on one axis, of the elements that part.
fn axis(report: &Value, of: &str, axis: usize) -> (u64, u64) {
    let axis = report.pointer(&format!("/outcome/{of}/spread/axes/{axis}")).unwrap();
    (axis[0].as_u64().unwrap(), axis[1].as_u64().unwrap())
}

/// Five wrong places, in a trained llama and in two other networks: the layer and the op.
#[rstest]
#[case::rope(
    "glassllm-f32",
    "rope-base-of-layer",
    "layers.2.self_attn.q_rope",
    "layers.2.self_attn.v"
)]
#[case::head("glassllm-f32", "one-head", "layers.3.self_attn.sdpa", "layers.3.self_attn.k_rope")]
#[case::tile("glassllm-f32", "mlp-tile", "layers.1.mlp.down", "layers.1.mlp.act")]
#[case::eps(
    "glassllm-f32",
    "norm-eps",
    "layers.2.post_attention_layernorm",
    "layers.2.self_attn.o"
)]
#[case::rope_qwen3(
    "qwen3-f32",
    "rope-base-of-layer",
    "layers.2.self_attn.q_rope",
    "layers.2.self_attn.q_norm"
)]
#[case::tile_qwen3("qwen3-f32", "mlp-tile", "layers.1.mlp.down", "layers.1.mlp.act")]
#[case::head_gemma3(
    "gemma3-1m",
    "one-head",
    "layers.3.self_attn.sdpa",
    "layers.3.self_attn.k_rope"
)]
#[case::tile_gemma3("gemma3-1m", "mlp-tile", "layers.1.mlp.down", "layers.1.mlp.act")]
fn a_wrong_place_is_named(
    #[case] model: &str,
    #[case] fault: &str,
    #[case] first: &str,
    #[case] before: &str,
) {
    let ids = if model == "qwen3-f32" { "3,14,159,26,53,89,79,32,84,62,64,33" } else { IDS };
    let report = report(model, &["--bad", &format!("fault:{fault}"), "--ids", ids], MISMATCH);
    assert_eq!(text(&report, "kind"), "found", "{report}");
    assert_eq!((text(&report, "first/name"), text(&report, "last_equal/name")), (first, before));
    assert_eq!(report.pointer("/outcome/held"), Some(&5.into()));
    match fault {
        "one-head" => assert_eq!(axis(&report, "parting", 1), (1, 1)),
        "mlp-tile" => {
            let width =
                report.pointer("/outcome/parting/spread/shape/2").unwrap().as_u64().unwrap();
            assert_eq!(axis(&report, "parting", 2), (width - 32, width - 1));
        }
        // Position 0 is not turned.
        "rope-base-of-layer" => assert_eq!(axis(&report, "parting", 2).0, 1),
        _ => {}
    }
}

/// What a call leaves in a cache shows in the next call only, and the slot is named.
#[test]
fn a_wrong_cache_slot_is_named() {
    let arguments = ["--bad", "fault:cache-slot", "--ids", IDS, "--steps", "3"];
    let report = report("glassllm-f32", &arguments, MISMATCH);
    assert_eq!(text(&report, "first/name"), "layers.1.self_attn.sdpa", "{report}");
    assert_eq!(text(&report, "last_equal/name"), "layers.1.self_attn.k_rope");
    assert_eq!(report.pointer("/outcome/call"), Some(&1.into()));
    assert_eq!(text(&report, "cache/tensor"), "layers.1.values");
    assert_eq!(axis(&report, "cache/parting", 2), (3, 3));
}

#[test]
fn a_fault_that_comes_and_goes_is_not_deterministic() {
    let report = report("glassllm-f32", &["--bad", "fault:flaky", "--ids", IDS], MISMATCH);
    assert_eq!((text(&report, "kind"), text(&report, "side")), ("not-deterministic", "bad"));
    assert_eq!(text(&report, "seen_at/name"), "layers.1.mlp.down");
    assert_eq!(report.pointer("/outcome/differ"), Some(&2.into()));
}

#[test]
fn a_fault_that_goes_when_watched_is_lost() {
    let ran = bisect(&["glassllm-f32", "--bad", "fault:unwatched", "--ids", IDS]).expect(MISMATCH);
    assert!(ran.stdout.contains("lost it"), "{}", ran.stdout);
    assert!(ran.stdout.contains("the bad path gives other logits when"), "{}", ran.stdout);
}

#[test]
fn a_path_and_itself_are_the_same() {
    for path in ["l1", "l2:kv8"] {
        let report = report("glassllm-f32", &["--good", path, "--bad", path, "--ids", IDS], HELD);
        assert_eq!(text(&report, "kind"), "same");
        assert_eq!(report.pointer("/outcome/relative"), Some(&0.0.into()));
    }
}

/// Packed keys are read by the first layer's attention already; a threshold lets them be.
#[test]
fn packed_keys_part_at_the_first_attention() {
    let report8 = report("glassllm-f32", &["--bad", "l2:kv8", "--ids", IDS], MISMATCH);
    assert_eq!(text(&report8, "first/name"), "layers.0.self_attn.sdpa");
    let wide = report("glassllm-f32", &["--bad", "l2:kv8", "--ids", IDS, "--rtol", "1"], HELD);
    assert_eq!(text(&wide, "kind"), "same");
}

#[test]
fn the_text_says_where_and_how_to_see_it_again() {
    let arguments = ["glassllm-f32", "--bad", "fault:norm-eps", "--prompt", "Once upon a time"];
    let ran = bisect(&arguments).expect(MISMATCH);
    for wanted in [
        "layer         2",
        "op            layers.2.post_attention_layernorm (call 0)",
        "behind layers.2.self_attn.o, which does not part",
        "5 of 5 repeats",
        "profile       embed",
    ] {
        assert!(ran.stdout.contains(wanted), "no `{wanted}` in\n{}", ran.stdout);
    }
    let replay = ran.stdout.lines().find_map(|line| line.strip_prefix("replay")).unwrap();
    let words: Vec<_> = replay.split_whitespace().skip(2).collect();
    let again = bisect(&words).expect(MISMATCH);
    let op = |text: &str| text.lines().find(|line| line.starts_with("op ")).unwrap().to_owned();
    assert_eq!(op(&again.stdout), op(&ran.stdout));
}

/// Our own intermediates, as another engine would write them, are the same; changed in one place, that
/// place is found.
#[test]
fn a_dump_is_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("taps.safetensors");
    let (name, bad) = (file.to_str().unwrap(), format!("dump:{}", file.display()));
    bisect(&["glassllm-f32", "--save-taps", name, "--ids", IDS, "--calls", "5,6,1"]).expect(HELD);
    let same = report("glassllm-f32", &["--bad", &bad], HELD);
    assert_eq!(same.pointer("/script/calls"), Some(&serde_json::json!([5, 6, 1])));

    let dump = safetensors::SafetensorsFile::open(&file).unwrap();
    let wrong = folder.path().join("wrong.safetensors");
    let mut tensors: Vec<(String, HostTensor)> =
        dump.names().map(|name| (name.to_owned(), dump.tensor(name).unwrap())).collect();
    let from = ["tap.1.layers.2.mlp.act", "tap.1.layers.2.out", "tap.1.logits"];
    tensors.retain(|(name, _)| name != "tap.1.layers.2.mlp.down");
    for (_, tensor) in tensors.iter_mut().filter(|(name, _)| from.contains(&name.as_str())) {
        let mut bytes = tensor.bytes().to_vec();
        bytes[4 * 7 + 3] ^= 0x80;
        *tensor = HostTensor::new(tensor.dtype(), tensor.shape(), bytes).unwrap();
    }
    let borrowed = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
    safetensors::write(&wrong, borrowed, &BTreeMap::new()).unwrap();
    let bad = format!("dump:{}", wrong.display());
    let report = report("glassllm-f32", &["--bad", &bad], MISMATCH);
    assert_eq!(text(&report, "first/name"), "layers.2.mlp.act");
    assert_eq!(text(&report, "last_equal/name"), "layers.2.mlp.up");
    assert_eq!(text(&report, "one_sided/0"), "layers.2.mlp.down");
    assert_eq!(
        report.pointer("/outcome/parting/element/coords"),
        Some(&serde_json::json!([0, 0, 7]))
    );
    assert_eq!(text(&report, "swallowed/name"), "layers.3.out");
}

#[test]
fn a_worker_that_dies_is_a_crash() {
    let arguments = ["glassllm-f32", "--bad", "fault:abort", "--ids", IDS, "--steps", "4"];
    let ran = bisect(&arguments).expect(CRASHED);
    assert!(ran.stderr.contains("bad: its worker crashed: SIGABRT"), "{}", ran.stderr);
}

#[rstest]
#[case::no_bad_path(&["--ids", IDS], "--bad <PATH>")]
#[case::no_input(&["--bad", "l2:kv8"], "--ids, --text or --prompt")]
#[case::unknown_path(&["--bad", "l9", "--ids", IDS], "l1")]
#[case::kernels(&["--bad", "kernels=swiglu", "--ids", IDS], "neither l1")]
#[case::unknown_fault(&["--bad", "fault:typo", "--ids", IDS], "typo")]
#[case::too_wide_a_group(&["--bad", "l2:kv8g64", "--ids", IDS], "64")]
#[case::not_an_id(&["--bad", "l2:kv8", "--ids", "one,two"], "`one` is no token id")]
#[case::beyond_the_vocabulary(&["--bad", "l2:kv8", "--ids", "1,99999"], "99999")]
#[case::calls(&["--bad", "l2:kv8", "--ids", "1,2,3", "--calls", "1,1"], "there are 3")]
#[case::no_prompt_left(&["--bad", "l2:kv8", "--ids", "1,2,3", "--steps", "3"], "at most 2")]
#[case::one_repeat(&["--bad", "l2:kv8", "--ids", IDS, "--repeats", "1"], "2..")]
#[case::good_dump(&["--good", "dump:x", "--bad", "l1", "--ids", IDS], "only be the bad path")]
#[case::no_such_dump(&["--bad", "dump:absent.safetensors"], "absent.safetensors")]
#[case::no_such_file(&["--bad", "l2:kv8", "--text", "absent.txt"], "absent.txt")]
fn a_request_that_cannot_be_honoured_exits_2(#[case] arguments: &[&str], #[case] wanted: &str) {
    let ran = bisect(&[&["glassllm-f32"], arguments].concat()).expect(USAGE);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains(wanted), "{}", ran.stderr);
}

#[test]
fn a_dump_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.safetensors");
    let write = |tensors: &[(&str, HostTensor)]| {
        let tensors = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), tensor));
        safetensors::write(&file, tensors, &BTreeMap::new()).unwrap();
    };
    let ids = || HostTensor::from_u32([2], &[1, 2]).unwrap();
    let floats =
        |shape: &[usize]| HostTensor::from_f32(shape, &vec![0.0; shape.iter().product()]).unwrap();
    let bad = format!("dump:{}", file.display());
    for (tensors, wanted) in [
        (vec![("tap.0.logits", floats(&[2, 4]))], "no `ids`"),
        (vec![("ids", floats(&[2]))], "wanted integers, [n]"),
        (vec![("ids", ids())], "no `tap.0.logits`"),
        (vec![("ids", ids()), ("tap.0.logits", floats(&[3, 4]))], "wanted [1, 2, vocab]"),
        (vec![("ids", ids()), ("calls", ids())], "calls of [1, 2] take 3 ids"),
        (vec![("ids", ids()), ("tap.1.logits", floats(&[2, 4]))], "is of no call"),
    ] {
        write(&tensors);
        let ran = bisect(&["glassllm-f32", "--bad", &bad]).expect(USAGE);
        assert!(
            ran.stderr.contains("d.safetensors: ") && ran.stderr.contains(wanted),
            "{}",
            ran.stderr
        );
    }
    write(&[("ids", ids()), ("tap.0.logits", floats(&[2, 4]))]);
    let ran = bisect(&["glassllm-f32", "--bad", &bad, "--ids", IDS]).expect(USAGE);
    assert!(ran.stderr.contains("brings its own ids"), "{}", ran.stderr);
}

/// Where there is one kind of processor only, the other is refused by name.
#[test]
fn between_backends_needs_two() {
    let ran = bisect(&["glassllm-f32", "--between-backends", "--ids", IDS]);
    if ran.code == Some(USAGE) {
        assert!(ran.stderr.contains("bad: no gpu to compute on: this is mlx"), "{}", ran.stderr);
    } else {
        assert!(matches!(ran.code, Some(HELD | MISMATCH)), "{}", ran.stderr);
    }
}
