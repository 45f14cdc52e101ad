//! Rotary scaling that mlx-lm takes from a config and then does not use.

use serde_json::{Value, json};

use super::common::{Folder, on_mlx_thread};
use super::{logits, synthetic};

/// `qwen3_moe` without a layer of experts is qwen3, whose scaling mlx-lm does use.
fn without_experts(model_type: &str, scaling: &Value) -> Folder {
    let mut folder = synthetic("qwen3_moe");
    let width = folder.config["intermediate_size"].as_u64().expect("a width") as usize;
    folder.tensors.retain(|name, _| !name.contains(".mlp."));
    for layer in 0..4 {
        for (name, shape) in
            [("gate_proj", [width, 64]), ("up_proj", [width, 64]), ("down_proj", [64, width])]
        {
            let name = format!("model.layers.{layer}.mlp.{name}.weight");
            folder.add(&name, &shape, mlx_parity_tensor::Dtype::F32);
        }
    }
    let config = folder.config.as_object_mut().expect("an object");
    config.insert("rope_scaling".to_owned(), scaling.clone());
    config.insert("mlp_only_layers".to_owned(), json!([0, 1, 2, 3]));
    if model_type == "qwen3" {
        config.insert("model_type".to_owned(), json!(model_type));
        for key in [
            "num_experts",
            "num_experts_per_tok",
            "decoder_sparse_step",
            "mlp_only_layers",
            "moe_intermediate_size",
            "norm_topk_prob",
        ] {
            config.remove(key);
        }
    }
    folder
}

#[test]
fn scaling_means_what_it_means_in_qwen3() {
    on_mlx_thread(|| {
        let yarn =
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8});
        let scalings = [json!(null), json!({"rope_type": "linear", "factor": 4.0}), yarn];
        let answers = scalings.map(|scaling| {
            let [sparse, dense] = ["qwen3_moe", "qwen3"].map(|model_type| {
                logits(&without_experts(model_type, &scaling).load().expect("a good folder"))
            });
            assert_eq!(sparse, dense, "{scaling}");
            sparse
        });
        assert!(answers[0] != answers[1] && answers[0] != answers[2] && answers[1] != answers[2]);
    });
}
