//! Model folders: the index decides, and every disagreement with it is an error.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mlx_parity_tensor::HostTensor;
use mlx_parity_tensor::safetensors::{Checkpoint, write};
use rstest::rstest;

fn shard(folder: &Path, file: &str, names: &[&str]) {
    let tensors: Vec<_> = names
        .iter()
        .map(|name| (*name, HostTensor::from_f32([2], &[name.len() as f32, 1.0]).unwrap()))
        .collect();
    let borrowed = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), tensor));
    write(folder.join(file), borrowed, &BTreeMap::new()).unwrap();
}

fn index(folder: &Path, text: &str) {
    fs::write(folder.join("model.safetensors.index.json"), text).unwrap();
}

const INDEX: &str = r#"{"metadata":{"total_size":24},"weight_map":{"a":"s1","b":"s2","c":"s1"}}"#;

#[test]
fn a_single_file_folder_opens() {
    let folder = tempfile::tempdir().unwrap();
    shard(folder.path(), "model.safetensors", &["b", "a"]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert!(checkpoint.names().eq(["a", "b"]));
    assert_eq!(checkpoint.tensor("b").unwrap().value_at(1), 1.0);
    let message = checkpoint.view("x").unwrap_err().to_string();
    assert!(message.contains("no tensor `x` among 2"), "{message}");
}

#[test]
fn the_index_decides_and_stale_files_are_never_read() {
    let folder = tempfile::tempdir().unwrap();
    index(folder.path(), INDEX);
    shard(folder.path(), "s1", &["a", "c"]);
    shard(folder.path(), "s2", &["b"]);
    let alone = Checkpoint::open(folder.path()).unwrap().digest();
    fs::write(folder.path().join("model.safetensors"), "garbage").unwrap();
    shard(folder.path(), "model-00009-of-00009.safetensors", &["a", "stale"]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert!(checkpoint.names().eq(["a", "b", "c"]));
    assert_eq!(checkpoint.files().len(), 2);
    assert_eq!(checkpoint.digest(), alone);
}

#[test]
fn the_digest_sees_names_and_bytes_but_not_sharding() {
    let [split, whole, renamed] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    index(split.path(), INDEX);
    shard(split.path(), "s1", &["a", "c"]);
    shard(split.path(), "s2", &["b"]);
    shard(whole.path(), "model.safetensors", &["c", "b", "a"]);
    shard(renamed.path(), "model.safetensors", &["d", "b", "a"]);
    let digest = |folder: &Path| Checkpoint::open(folder).unwrap().digest();
    assert_eq!(digest(split.path()), digest(whole.path()));
    assert_ne!(digest(whole.path()), digest(renamed.path()));
}

#[rstest]
#[case::missing_shard(INDEX, &["a", "c"], None, "shard `s2` is missing; the index wants it for tensor `b`")]
#[case::not_in_shard(INDEX, &["a"], Some(&["b"][..]), "sends tensor `c` to `s1`, which does not have it")]
#[case::in_two_shards(INDEX, &["a", "b", "c"], Some(&["b"][..]), "`b` is in `s1`, but the index sends it to `s2`")]
#[case::not_in_index(INDEX, &["a", "c", "d"], Some(&["b"][..]), "`d` is in `s1`, but not in the index")]
#[case::twice(r#"{"weight_map":{"a":"s1","a":"s2"}}"#, &["a"], Some(&["a"][..]), "`a` is listed twice")]
#[case::outside(r#"{"weight_map":{"a":"../s1"}}"#, &["a"], None, "`../s1`, wanted a file name")]
#[case::empty(r#"{"weight_map":{}}"#, &["a"], None, "`weight_map` is empty")]
#[case::no_map(r#"{"metadata":{}}"#, &["a"], None, "bad index: missing field `weight_map`")]
#[case::not_json("{", &["a"], None, "bad index")]
fn a_folder_that_disagrees_with_its_index_is_refused(
    #[case] text: &str,
    #[case] first: &[&str],
    #[case] second: Option<&[&str]>,
    #[case] wanted: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    index(folder.path(), text);
    shard(folder.path(), "s1", first);
    if let Some(names) = second {
        shard(folder.path(), "s2", names);
    }
    let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains(wanted) && message.contains("index.json"), "{message}");
}

#[test]
fn a_bad_shard_is_named_itself() {
    let folder = tempfile::tempdir().unwrap();
    index(folder.path(), r#"{"weight_map":{"a":"s1"}}"#);
    fs::write(folder.path().join("s1"), "short").unwrap();
    let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("s1: file has 5 bytes"), "{message}");
}

#[test]
fn a_folder_without_weights_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("wanted model.safetensors"), "{message}");
}
