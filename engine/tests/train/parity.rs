//! The same model, adapter and batches in mlx-lm's trainer.

use mlx_parity_engine::array::{from_host, to_host};
use mlx_parity_engine::train::{Backward, TrainOptions, Trainer, clip_grad_norm};
use rstest::rstest;

use crate::common::on_mlx_thread;
use crate::setting::{Ask, Setting, first_difference, host, options};

const STEPS: usize = 20;

/// Everything that can be compared: gradients of the first step, losses of all, adapters after the last.
#[rstest]
#[case::packed("glassllm-4bit", Ask::default())]
#[case::plain("glassllm-f32", Ask::default())]
#[case::averaged("glassllm-4bit", Ask { accumulate: 4, bias_correction: true, ..Ask::default() })]
#[case::checkpointed("glassllm-4bit", Ask { checkpoint: true, ..Ask::default() })]
fn twenty_steps_have_the_bits_of_mlx_lms_trainer(#[case] name: &'static str, #[case] ask: Ask) {
    on_mlx_thread(move || {
        let setting = Setting::new(name);
        let theirs = setting.ask(STEPS, ask);
        let (mut model, adapter) = setting.load();
        let backward = if ask.checkpoint { Backward::Checkpointed } else { Backward::Whole };
        let mut options = TrainOptions { backward, accumulate: ask.accumulate, ..options() };
        options.optimizer.bias_correction = ask.bias_correction;
        let mut trainer = Trainer::new(&mut model, &adapter, options).unwrap();
        let rows = setting.rows();
        let first = trainer.gradients(&rows[0]).unwrap();
        assert_eq!(first_difference(&host(&first.gradients), &theirs.gradients), None, "gradients");
        let losses: Vec<f32> =
            (0..STEPS).map(|step| trainer.step(&rows[step % rows.len()]).unwrap().value).collect();
        for (step, (ours, theirs)) in losses.iter().zip(&theirs.losses).enumerate() {
            assert_eq!(ours.to_bits(), theirs.to_bits(), "step {step}: {ours} and {theirs}");
        }
        assert_eq!((losses.len(), theirs.losses.len()), (STEPS, STEPS));
        assert_eq!(first.loss.value.to_bits(), losses[0].to_bits());
        let adapter = trainer.adapter().unwrap();
        assert_eq!(first_difference(&host(adapter.tensors()), &theirs.adapters), None, "adapters");
        let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
        let (before, after) = (mean(&losses[..6]), mean(&losses[STEPS - 6..]));
        println!("{name} {ask:?}: {before} -> {after}; {losses:?}");
        assert!(after < before, "the loss rises from {before} to {after}");
    });
}

#[test]
fn gradients_are_clipped_as_mlx_clips_them() {
    on_mlx_thread(|| {
        let setting = Setting::new("glassllm-f32");
        let theirs = setting.ask(1, Ask::default());
        let gradients: Vec<_> =
            theirs.gradients.values().map(|gradient| from_host(gradient).unwrap()).collect();
        let (clipped, norm) = clip_grad_norm(&gradients, Setting::CLIP).unwrap();
        let norm = to_host(&norm).unwrap().to_f64()[0];
        assert!(norm > Setting::CLIP, "a norm of {norm} is not clipped");
        for ((name, wanted), found) in theirs.clipped.iter().zip(&clipped) {
            assert_eq!(to_host(found).unwrap(), *wanted, "{name}");
        }
        let (same, _) = clip_grad_norm(&gradients, 2.0 * norm).unwrap();
        assert_eq!(to_host(&same[0]).unwrap(), to_host(&gradients[0]).unwrap());
    });
}
