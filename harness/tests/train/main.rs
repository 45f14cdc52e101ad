//! Training beside mlx-lm's trainer: the same model, adapter and batches in both, compared bit for bit.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod setting;

use std::collections::BTreeMap;

use mlx_parity_engine::array::to_host;
use mlx_parity_engine::train::{AdamWOptions, Backward, TrainOptions, Trainer};
use mlx_parity_tensor::HostTensor;
use rstest::rstest;

use self::setting::{Ask, Setting};

const STEPS: usize = 20;

fn options() -> TrainOptions {
    let optimizer = AdamWOptions { learning_rate: 2e-3, ..AdamWOptions::default() };
    TrainOptions { optimizer, ..TrainOptions::default() }
}

/// The first tensor with other bits, and how many of its values have.
fn first_difference(
    ours: &BTreeMap<String, HostTensor>,
    theirs: &BTreeMap<String, HostTensor>,
) -> Option<String> {
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    ours.iter().find(|(name, tensor)| theirs[*name] != **tensor).map(|(name, tensor)| {
        let pairs = tensor.to_f64().into_iter().zip(theirs[name].to_f64());
        let off: Vec<f64> = pairs.map(|(a, b)| (a - b).abs()).filter(|off| *off != 0.0).collect();
        let worst = off.iter().copied().fold(0.0, f64::max);
        format!("{name}: {} of {} values, by {worst:e} at most", off.len(), tensor.len())
    })
}

/// Everything that can be compared: losses of all steps, gradients of the first, adapters after the last.
#[rstest]
#[case::packed("glassllm-4bit", Backward::Whole, 1)]
#[case::plain("glassllm-f32", Backward::Whole, 1)]
#[case::averaged("glassllm-4bit", Backward::Whole, 4)]
#[case::checkpointed("glassllm-4bit", Backward::Checkpointed, 1)]
#[case::segmented("glassllm-4bit", Backward::Segmented { layers: 1 }, 1)]
fn twenty_steps_have_the_bits_of_mlx_lms_trainer(
    #[case] name: &str,
    #[case] backward: Backward,
    #[case] accumulate: usize,
) {
    let _turn = setting::turn();
    let setting = Setting::new(name);
    let checkpoint = backward == Backward::Checkpointed;
    let theirs = setting.ask(&Ask { iters: STEPS, accumulate, checkpoint, compile: false });

    let (mut model, adapter) = setting.load();
    let options = TrainOptions { backward, accumulate, ..options() };
    let mut trainer = Trainer::new(&mut model, &adapter, options).unwrap();
    let rows = setting.rows();
    let first = trainer.gradients(&rows[0]).unwrap();
    let host = |tensors: &BTreeMap<String, mlx_parity_engine::Array>| {
        tensors.iter().map(|(name, array)| (name.clone(), to_host(array).unwrap())).collect()
    };
    assert_eq!(first_difference(&host(&first.gradients), &theirs.gradients), None, "gradients");
    let steps = (0..STEPS).map(|step| trainer.step(&rows[step % rows.len()]).unwrap().value);
    let losses: Vec<f32> = steps.collect();
    assert_eq!(first.loss.value.to_bits(), losses[0].to_bits());
    for (step, (ours, theirs)) in losses.iter().zip(&theirs.losses).enumerate() {
        assert_eq!(ours.to_bits(), theirs.to_bits(), "loss of step {step}: {ours} and {theirs}");
    }
    assert_eq!((losses.len(), theirs.losses.len()), (STEPS, STEPS));
    let adapter = trainer.adapter().unwrap();
    assert_eq!(first_difference(&host(adapter.tensors()), &theirs.adapters), None, "adapters");
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    let (before, after) = (mean(&losses[..5]), mean(&losses[STEPS - 5..]));
    println!("{name} {backward:?} accumulate {accumulate}: {before} -> {after}; {losses:?}");
    assert!(after < before, "the loss rises from {before} to {after}");
}
