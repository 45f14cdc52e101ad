//! Checkpoints of mlx-lm hold all experts of a projection in one tensor, those of the Hugging Face
//! layout one tensor an expert, or gate and up of all experts in one.

use std::collections::BTreeMap;

use mlx_parity_engine::ops::Affine;
use mlx_parity_engine::ops::packed::Mode;
use mlx_parity_engine::{EngineError, LoadOptions, Model};
use mlx_parity_tensor::HostTensor;
use rstest::rstest;
use serde_json::json;

use super::common::{Folder, on_mlx_thread};
use super::{logits, pack, synthetic};

const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// The part of a tensor that belongs to one expert.
fn of_expert(tensor: &HostTensor, expert: usize) -> HostTensor {
    let row = tensor.rows(expert..expert + 1);
    HostTensor::new(row.dtype(), &tensor.shape()[1..], row.into_bytes()).expect("one of them")
}

/// Takes the stacked experts out of a folder: layer path, projection, suffix and tensor.
fn take_experts(folder: &mut Folder, module: &str) -> Vec<(String, usize, String, HostTensor)> {
    let mut taken = Vec::new();
    let tensors = std::mem::take(&mut folder.tensors);
    for (name, tensor) in tensors {
        let found = PROJECTIONS.iter().enumerate().find_map(|(i, projection)| {
            let (path, suffix) = name.split_once(&format!(".{module}.{projection}."))?;
            Some((path.to_owned(), i, suffix.to_owned()))
        });
        match found {
            Some((path, projection, suffix)) => taken.push((path, projection, suffix, tensor)),
            None => drop(folder.tensors.insert(name, tensor)),
        }
    }
    assert!(!taken.is_empty(), "{module}");
    taken
}

/// The same checkpoint with one tensor an expert.
fn one_each(mut folder: Folder, module: &str, names: [&str; 3]) -> Folder {
    for (path, projection, suffix, tensor) in take_experts(&mut folder, module) {
        for expert in 0..tensor.shape()[0] {
            let name = format!("{path}.experts.{expert}.{}.{suffix}", names[projection]);
            folder.tensors.insert(name, of_expert(&tensor, expert));
        }
    }
    folder
}

/// The same checkpoint with granitemoe's two tensors a layer.
fn fused(mut folder: Folder) -> Folder {
    let mut layers: BTreeMap<String, [Option<HostTensor>; 3]> = BTreeMap::new();
    for (path, projection, _, tensor) in take_experts(&mut folder, "switch_mlp") {
        layers.entry(path).or_default()[projection] = Some(tensor);
    }
    for (path, projections) in layers {
        let [gate, up, down] = projections.map(|tensor| tensor.expect("all three"));
        let &[experts, inner, hidden] = gate.shape() else { panic!("three axes") };
        let both = (0..experts).flat_map(|expert| {
            [of_expert(&gate, expert).into_bytes(), of_expert(&up, expert).into_bytes()].concat()
        });
        let both = HostTensor::new(gate.dtype(), [experts, 2 * inner, hidden], both.collect());
        folder.tensors.insert(format!("{path}.input_linear.weight"), both.expect("both"));
        folder.tensors.insert(format!("{path}.output_linear.weight"), down);
    }
    folder
}

const USUAL: [&str; 3] = PROJECTIONS;
const NUMBERED: [&str; 3] = ["w1", "w3", "w2"];

#[rstest]
#[case::mixtral("mixtral", "switch_mlp", NUMBERED)]
#[case::phimoe("phimoe", "switch_mlp", NUMBERED)]
#[case::qwen2_moe("qwen2_moe", "switch_mlp", USUAL)]
#[case::qwen3_moe("qwen3_moe", "switch_mlp", USUAL)]
#[case::olmoe("olmoe", "switch_mlp", USUAL)]
#[case::glm4_moe("glm4_moe", "switch_mlp", USUAL)]
#[case::ernie4_5_moe("ernie4_5_moe", "switch_mlp", USUAL)]
#[case::dots1("dots1", "experts", USUAL)]
fn one_tensor_an_expert_gives_the_same_bits(
    #[case] name: &'static str,
    #[case] module: &'static str,
    #[case] names: [&'static str; 3],
    #[values(None, Some(4), Some(8))] bits: Option<i32>,
) {
    on_mlx_thread(move || {
        let mut stacked = synthetic(name);
        if let Some(bits) = bits {
            let mode = Mode::Affine(Affine { group_size: 32, bits });
            let is_experts = |path: &str| path.contains(&format!(".{module}."));
            let paths: Vec<String> = stacked
                .tensors
                .keys()
                .filter_map(|name| name.strip_suffix(".weight"))
                .filter(|path| is_experts(path))
                .map(str::to_owned)
                .collect();
            for path in paths {
                pack(&mut stacked, &path, mode);
            }
            stacked.config["quantization"] = json!({"group_size": 32, "bits": 4});
        }
        let wanted = logits(&stacked.load().expect("mlx-lm's layout"));
        let each = one_each(stacked, module, names);
        assert_eq!(logits(&each.load().expect("Hugging Face's layout")), wanted);
    });
}

#[test]
fn gate_and_up_in_one_tensor_give_the_same_bits() {
    on_mlx_thread(|| {
        let stacked = synthetic("granitemoe");
        let wanted = logits(&stacked.load().expect("mlx-lm's layout"));
        let fused = fused(stacked);
        assert_eq!(logits(&fused.load().expect("Hugging Face's layout")), wanted);
    });
}

fn audit(folder: &Folder) -> [Vec<String>; 3] {
    match folder.load() {
        Err(EngineError::WeightAudit { missing, unexpected, unfit, .. }) => {
            [missing, unexpected, unfit]
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_expert_too_few_too_many_or_too_small_is_named() {
    on_mlx_thread(|| {
        let layer = "model.layers.1.block_sparse_moe.experts";
        let good = || one_each(synthetic("mixtral"), "switch_mlp", NUMBERED);

        let mut few = good();
        few.tensors.remove(&format!("{layer}.5.w2.weight"));
        assert_eq!(audit(&few), [vec![format!("{layer}.5.w2.weight")], vec![], vec![]]);

        let mut many = good();
        let extra = many.tensors[&format!("{layer}.7.w1.weight")].clone();
        many.tensors.insert(format!("{layer}.8.w1.weight"), extra);
        assert_eq!(audit(&many), [vec![], vec![format!("{layer}.8.w1.weight")], vec![]]);

        let mut small = good();
        let narrow = small.tensors[&format!("{layer}.3.w1.weight")].rows(0..8);
        small.tensors.insert(format!("{layer}.3.w1.weight"), narrow);
        let [missing, unexpected, unfit] = audit(&small);
        assert_eq!((missing.len(), unexpected.len(), unfit.len()), (0, 0, 1));
        assert!(unfit[0].contains(&format!("{layer}.3.w1.weight")), "{unfit:?}");

        let mut both = good();
        let stacked = synthetic("mixtral");
        let whole = "model.layers.0.block_sparse_moe.switch_mlp.up_proj.weight";
        both.tensors.insert(whole.to_owned(), stacked.tensors[whole].clone());
        assert_eq!(audit(&both)[1].len(), 8, "two layouts of one projection leave one unread");
    });
}

#[test]
fn a_gate_may_be_packed_in_its_own_way() {
    on_mlx_thread(|| {
        let mut folder = synthetic("mixtral");
        folder.config["quantization"] = json!({"group_size": 32, "bits": 4});
        let plain = logits(&folder.load().expect("nothing is packed"));
        for layer in 0..3 {
            let path = format!("model.layers.{layer}.block_sparse_moe.gate");
            pack(&mut folder, &path, Mode::Affine(Affine { group_size: 64, bits: 8 }));
            folder.config["quantization"][&path] = json!({"group_size": 64, "bits": 8});
        }
        let packed = logits(&folder.load().expect("8 bits in groups of 64"));
        assert_ne!(packed, plain);
        // What the config does not say, the shapes say.
        folder.config["quantization"] = json!({"group_size": 32, "bits": 4});
        assert_eq!(logits(&folder.load().expect("inferred")), packed);

        folder.config["quantization"]["model.layers.0.block_sparse_moe.gate"] = json!(true);
        assert_eq!(audit(&folder)[2].len(), 3, "4 bits in groups of 32 do not fit");
    });
}

#[test]
fn a_bare_router_weight_is_never_packed() {
    on_mlx_thread(|| {
        let mut folder = synthetic("glm4_moe");
        let path = "model.layers.1.mlp.gate";
        folder.config["quantization"] = json!({"group_size": 32, "bits": 4, path: false});
        folder.load().expect("`false` says what it is");
        folder.config["quantization"][path] = json!({"group_size": 32, "bits": 8});
        let message = folder.load().expect_err("it is no layer").to_string();
        assert!(message.contains(path), "{message}");
    });
}

#[test]
fn layers_behind_the_last_are_dropped_where_the_reference_drops_them() {
    on_mlx_thread(|| {
        let mut folder = synthetic("glm4_moe");
        let wanted = logits(&folder.load().expect("a good folder"));
        let extra = folder.tensors["model.norm.weight"].clone();
        folder.tensors.insert("model.layers.4.eh_proj.weight".to_owned(), extra.clone());
        assert_eq!(logits(&folder.load().expect("it is dropped")), wanted);
        folder.tensors.insert("model.layers.5.eh_proj.weight".to_owned(), extra);
        let [_, unexpected, _] = audit(&folder);
        assert_eq!(unexpected, ["model.layers.5.eh_proj.weight"]);
    });
}

#[test]
fn a_correction_that_the_reference_would_drop_is_not_dropped() {
    on_mlx_thread(|| {
        let mut folder = synthetic("ernie4_5_moe");
        let name = "model.layers.1.mlp.moe_statics.e_score_correction_bias";
        folder.add(name, &[8], mlx_parity_tensor::Dtype::F32);
        let error = Model::load(folder.write().path(), &LoadOptions::default());
        assert!(error.expect_err("it changes the choice").to_string().contains(name));
    });
}
