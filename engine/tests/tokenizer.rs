//! `tokenizer.json` of a model folder. No MLX here.

use mlx_parity_engine::{EngineError, Tokenizer};
use serde_json::json;

fn folder(text: &str) -> tempfile::TempDir {
    let dir = tempfile::TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("tokenizer.json"), text).expect("a tokenizer");
    dir
}

#[test]
fn text_becomes_ids_and_text_again() {
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": 3, "content": "<eos>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "one": 1, "two": 2}},
    });
    let dir = folder(&tokenizer.to_string());
    let tokenizer = Tokenizer::load(dir.path()).expect("a tokenizer");
    assert_eq!(tokenizer.encode("two one three").expect("ids"), [2, 1, 0]);
    assert_eq!(tokenizer.decode(&[1, 2, 3]).expect("text"), "one two");
    assert_eq!(tokenizer.vocab_size(), 4);
}

#[test]
fn a_missing_or_broken_file_is_named() {
    let (empty, broken) = (tempfile::TempDir::new().expect("a folder"), folder("{"));
    for dir in [empty, broken] {
        let error = Tokenizer::load(dir.path()).expect_err("no tokenizer");
        assert!(matches!(error, EngineError::Tokenizer { .. }), "{error:?}");
        assert!(error.to_string().contains("tokenizer.json"), "{error}");
    }
}
