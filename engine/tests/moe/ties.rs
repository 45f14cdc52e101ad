//! Experts of equal merit: which the reference's own call of `mx.argpartition` prefers.

use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

use super::common::{Folder, on_mlx_thread};
use super::{logits, synthetic};

/// A router without an opinion.
fn indifferent(name: &str, gate: &str) -> Folder {
    let mut folder = synthetic(name);
    for (name, tensor) in &mut folder.tensors {
        if name.ends_with(gate) || name.ends_with("e_score_correction_bias") {
            *tensor = HostTensor::zeros(Dtype::F32, tensor.shape()).expect("zeros");
        }
    }
    folder
}

/// Blanks the down projection of one expert in every layer.
fn without(mut folder: Folder, expert: usize) -> Folder {
    for (name, tensor) in &mut folder.tensors {
        if name.contains("down_proj") && tensor.shape().len() == 3 {
            let mut values = tensor.to_f64();
            let each = values.len() / tensor.shape()[0];
            values[expert * each..][..each].fill(0.0);
            let shape = tensor.shape().to_vec();
            *tensor = HostTensor::from_f64_as(Dtype::F32, shape, &values).expect("floats");
        }
    }
    folder
}

#[rstest]
#[case::mixtral_the_first("mixtral", "gate.weight", &[0, 1])]
#[case::granitemoe_the_last("granitemoe", "router.layer.weight", &[6, 7])]
#[case::qwen3_moe_the_last("qwen3_moe", "gate.weight", &[6, 7])]
#[case::olmoe_the_first("olmoe", "gate.weight", &[0, 1])]
#[case::glm4_moe_the_first("glm4_moe", "gate.weight", &[0, 1])]
#[case::ernie4_5_moe_the_first("ernie4_5_moe", "gate.weight", &[0, 1])]
#[case::phimoe_the_first("phimoe", "gate.weight", &[0, 1])]
fn ties_go_to(
    #[case] name: &'static str,
    #[case] gate: &'static str,
    #[case] picked: &'static [usize],
) {
    on_mlx_thread(move || {
        let whole = logits(&indifferent(name, gate).load().expect("a good folder"));
        let experts: Vec<usize> = (0..8)
            .filter(|&expert| {
                let folder = without(indifferent(name, gate), expert);
                logits(&folder.load().expect("a good folder")) != whole
            })
            .collect();
        assert_eq!(experts, picked);
    });
}
