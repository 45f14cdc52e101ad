//! Requests that cannot be honoured: one message, exit 2, nothing computed.

use rstest::rstest;

use super::*;

const FACTS: &str = "glassllm-f32";

#[rstest]
#[case::empty_text("", "there is no token in it")]
#[case::one_token("a", "leave no position to score")]
fn a_text_without_positions(#[case] text: &str, #[case] wanted: &str) {
    let bench = Bench::new();
    let path = bench.path("short.txt");
    fs::write(&path, text).unwrap();
    let ran =
        bench.run(&["--teacher", FACTS, "--student", FACTS, "--text", path.to_str().unwrap()]);
    let ran = ran.expect(USAGE);
    assert!(ran.stderr.contains("short.txt") && ran.stderr.contains(wanted), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[rstest]
#[case::no_tokens(&["--student", FACTS], "name a --text or --ids file")]
#[case::no_file(&["--student", FACTS, "--text", "absent.txt"], "absent.txt")]
#[case::no_student(&["--text", "LICENSE"], "--student")]
#[case::unknown_model(&["--student", "glasslm", "--text", "LICENSE"], "no registered model")]
#[case::kernels(&["--composition", "kernels=swiglu", "--text", "LICENSE"], "neither l1")]
#[case::composition(&["--student", "glassllm-f32@l2:kv7", "--text", "LICENSE"], "bits 2 to 6 or 8")]
#[case::said_twice(
    &["--student", "glassllm-f32@l1", "--composition", "l2:kv8", "--text", "LICENSE"],
    "says it already"
)]
#[case::unfit(&["--composition", "l2:kv8g128", "--text", "LICENSE"], "divisor of the head's width")]
#[case::long_call(&["--student", FACTS, "--text", "LICENSE", "--call", "5000"], "--call 5000")]
#[case::second_half(
    &["--student", FACTS, "--text", "LICENSE", "--max-tokens", "200", "--score", "second-half"],
    "leave no position to score in windows of 512"
)]
#[case::bound(&["--student", FACTS, "--text", "LICENSE", "--max-mean", "nan"], "finite number")]
#[case::part(&["--student", FACTS, "--text", "LICENSE", "--min-agreement", "1.1"], "wanted 0 to 1")]
fn is_refused(#[case] arguments: &[&str], #[case] wanted: &str) {
    let bench = Bench::new();
    let ran = bench.run(&[&["--teacher", FACTS], arguments].concat()).expect(USAGE);
    assert!(ran.stderr.contains(wanted), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[rstest]
#[case::outside("[1, 2, 99999999]", "token 2 has id 99999999")]
#[case::no_list("{}", "wanted a JSON list of token ids")]
#[case::empty("[]", "there is no document in it")]
fn ids_that_are_none(#[case] ids: &str, #[case] wanted: &str) {
    let bench = Bench::new();
    let path = bench.path("ids.json");
    fs::write(&path, ids).unwrap();
    let path = path.display().to_string();
    let ran = bench.run(&["--teacher", FACTS, "--student", FACTS, "--ids", &path]).expect(USAGE);
    assert!(ran.stderr.contains(wanted) && ran.stderr.contains("ids.json"), "{}", ran.stderr);
}

#[test]
fn a_tokenizer_that_gives_two_ids_to_each_other_s_tokens() {
    let bench = Bench::new();
    let folder = bench.copy_of(FACTS);
    let path = folder.join("tokenizer.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let [a, b] = ["e", "t"].map(|token| vocab[token].clone());
    (vocab["e"], vocab["t"]) = (b, a);
    fs::write(&path, tokenizer.to_string()).unwrap();
    let student = folder.display().to_string();
    // Named ids need no tokenizer, but whoever compares two models takes them to speak one language.
    let ids = bench.ids(&[5, 6, 7]);
    for tokens in [["--text", "LICENSE"], ["--ids", &ids]] {
        let run = [&["--teacher", FACTS, "--student", &student], &tokens[..]].concat();
        let ran = bench.run(&run).expect(USAGE);
        assert!(ran.stderr.contains("the tokenizers differ"), "{}", ran.stderr);
    }
}
