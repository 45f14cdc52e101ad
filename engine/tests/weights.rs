//! The audit: every tensor is read once and none is missing; the index decides which files count.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::{Folder, HIDDEN, VOCAB, on_mlx_thread, write_tensors};
use mlx_parity_engine::{Decoder, EngineError, LoadOptions, Model};
use mlx_parity_tensor::{Dtype, HostTensor};
use serde_json::json;

const DOWN: &str = "model.layers.1.mlp.down_proj.weight";
const NORM: &str = "model.norm.weight";

fn audit(folder: Folder) -> [Vec<String>; 3] {
    on_mlx_thread(move || match folder.load() {
        Err(EngineError::WeightAudit { missing, unexpected, unfit, .. }) => {
            [missing, unexpected, unfit]
        }
        other => panic!("the audit must fail, got {other:?}"),
    })
}

#[test]
fn all_missing_tensors_are_named_at_once() {
    let mut folder = Folder::llama(Dtype::F32);
    folder.tensors.remove(DOWN);
    folder.tensors.remove(NORM);
    let [mut missing, unexpected, unfit] = audit(folder);
    missing.sort();
    assert_eq!(missing, [DOWN, NORM]);
    assert!(unexpected.is_empty() && unfit.is_empty());
}

#[test]
fn tensors_that_nothing_reads_are_named() {
    let mut folder = Folder::qwen3(Dtype::F32);
    folder.add("model.layers.2.mlp.down_proj.weight", &[1], Dtype::F32);
    folder.add("model.layers.0.self_attn.q_proj.bias", &[64], Dtype::F32);
    let [missing, unexpected, unfit] = audit(folder);
    let wanted = ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.mlp.down_proj.weight"];
    assert_eq!(unexpected, wanted);
    assert!(missing.is_empty() && unfit.is_empty());
}

#[test]
fn packed_weights_without_a_quantization_are_unfit() {
    let mut folder = Folder::llama(Dtype::F32);
    let packed = HostTensor::zeros(Dtype::U32, [HIDDEN, 12]).expect("small");
    folder.tensors.insert(DOWN.to_owned(), packed);
    folder.add("model.layers.1.mlp.down_proj.scales", &[HIDDEN, 3], Dtype::F32);
    let [_, unexpected, unfit] = audit(folder);
    assert_eq!(unexpected, ["model.layers.1.mlp.down_proj.scales"]);
    assert_eq!(unfit.len(), 1, "{unfit:?}");
}

#[test]
fn a_tensor_of_another_shape_or_dtype_says_found_and_wanted() {
    let mut folder = Folder::gemma3_text(Dtype::Bf16);
    folder.add(NORM, &[HIDDEN + 1], Dtype::Bf16);
    folder.add(DOWN, &[HIDDEN, 96], Dtype::F64);
    let [missing, unexpected, unfit] = audit(folder);
    assert!(missing.is_empty() && unexpected.is_empty());
    assert_eq!(unfit.len(), 2);
    assert!(unfit.iter().any(|text| text.contains("[65]") && text.contains("[64]")), "{unfit:?}");
    assert!(unfit.iter().any(|text| text.contains("f64") && text.contains("f32")), "{unfit:?}");
}

#[test]
fn the_message_names_folder_and_tensors() {
    let mut folder = Folder::llama(Dtype::F32);
    folder.tensors.remove(NORM);
    folder.add("left.over", &[1], Dtype::F32);
    let dir = folder.write();
    let path = dir.path().to_owned();
    let message = on_mlx_thread(move || {
        Model::load(&path, &LoadOptions::default()).expect_err("two faults").to_string()
    });
    for part in [NORM, "left.over", &dir.path().display().to_string()] {
        assert!(message.contains(part), "{message} should name {part}");
    }
}

#[test]
fn what_the_reference_drops_may_be_there() {
    let mut folder = Folder::llama(Dtype::F32);
    folder.add("model.layers.0.self_attn.rotary_emb.inv_freq", &[8], Dtype::F32);
    folder.add("lm_head.weight", &[VOCAB, HIDDEN], Dtype::F32);
    on_mlx_thread(move || folder.load().map(drop)).expect("both are dropped");
}

#[test]
fn an_untied_model_needs_its_head() {
    let mut folder = Folder::qwen3(Dtype::F32);
    folder.config["tie_word_embeddings"] = json!(false);
    let [missing, ..] = audit(folder);
    assert_eq!(missing, ["lm_head.weight"]);
}

#[test]
fn gemma_says_when_config_and_tensors_disagree_on_tying() {
    let mut folder = Folder::gemma3_text(Dtype::F32);
    folder.config["tie_word_embeddings"] = json!(false);
    let message = on_mlx_thread(move || folder.load().expect_err("no head").to_string());
    assert!(message.contains("tie_word_embeddings"), "{message}");
}

#[test]
fn a_quantization_of_no_layer_is_refused() {
    let mut folder = Folder::llama(Dtype::F32);
    folder.config["quantization"] = json!({"bits": 4, "group_size": 32, "model.layers.9.x": false});
    let message = on_mlx_thread(move || folder.load().expect_err("no such layer").to_string());
    assert!(message.contains("model.layers.9.x"), "{message}");
}

/// Splits a folder in two shards with an index.
fn write_sharded(folder: &Folder) -> tempfile::TempDir {
    let dir = tempfile::TempDir::new().expect("a folder");
    folder.write_config(dir.path());
    let shard = |name: &str| {
        let number = 1 + usize::from(name.contains("layers.1"));
        format!("model-0000{number}-of-00002.safetensors")
    };
    for wanted in [shard("layers.0"), shard("layers.1")] {
        let part = folder.tensors.iter().filter(|(name, _)| shard(name) == wanted);
        write_tensors(&dir.path().join(&wanted), part);
    }
    let map: serde_json::Map<_, _> =
        folder.tensors.keys().map(|name| (name.clone(), json!(shard(name)))).collect();
    let index = json!({"metadata": {}, "weight_map": map});
    let path = dir.path().join("model.safetensors.index.json");
    std::fs::write(path, index.to_string()).expect("an index");
    dir
}

fn logits(dir: &std::path::Path) -> Result<HostTensor, EngineError> {
    let model = Model::load(dir, &LoadOptions::default())?;
    Decoder::new(&model, 4).prefill(&[1, 2, 3, 4, 5, 6])
}

#[test]
fn shards_give_the_logits_of_one_file_and_a_stale_one_is_not_read() {
    let folder = Folder::qwen3(Dtype::Bf16);
    let (whole, sharded) = (folder.write(), write_sharded(&folder));
    // Matches the reference's `model*.safetensors`, and would change the result.
    let stale = Folder::llama(Dtype::F32);
    write_tensors(&sharded.path().join("model-stale.safetensors"), stale.tensors.iter());
    let (a, b) = (whole.path().to_owned(), sharded.path().to_owned());
    let (a, b) = on_mlx_thread(move || (logits(&a).expect("whole"), logits(&b).expect("shards")));
    assert_eq!(a, b);
}

#[test]
fn a_missing_shard_is_named() {
    let dir = write_sharded(&Folder::llama(Dtype::F32));
    let lost = "model-00002-of-00002.safetensors";
    std::fs::remove_file(dir.path().join(lost)).expect("it was there");
    let path = dir.path().to_owned();
    let error = on_mlx_thread(move || logits(&path).expect_err("a shard is gone"));
    assert!(matches!(error, EngineError::Safetensors(_)), "{error:?}");
    assert!(error.to_string().contains(lost), "{error}");
}
