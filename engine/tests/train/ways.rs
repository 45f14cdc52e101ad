//! Gradients by every way are the same bits.

use std::collections::BTreeMap;

use mlx_parity_engine::train::{Backward, Gradients, Objective, TrainOptions, Trainer};
use mlx_parity_engine::{Adapter, EngineError, LoadOptions, LoraShape, Model, Rung};
use mlx_parity_tensor::HostTensor;
use rstest::rstest;

use crate::common::on_mlx_thread;
use crate::setting::{Setting, first_difference, host, options};

fn gradients(setting: &Setting, options: TrainOptions) -> (u32, BTreeMap<String, HostTensor>) {
    let (mut model, adapter) = setting.load();
    let trainer = Trainer::new(&mut model, &adapter, options).unwrap();
    let Gradients { loss, gradients } = trainer.gradients(&setting.rows()[1]).unwrap();
    (loss.value.to_bits(), host(&gradients))
}

#[rstest]
#[case::packed("glassllm-4bit", 4, Objective::NextToken)]
#[case::one_block("glassllm-4bit", 1, Objective::NextToken)]
#[case::preferences("glassllm-f32", 4, Objective::Orpo { weight: 0.5 })]
fn all_ways_give_the_same_bits(
    #[case] name: &'static str,
    #[case] blocks: usize,
    #[case] objective: Objective,
) {
    on_mlx_thread(move || {
        let setting = Setting::of_blocks(name, blocks);
        let with = |backward| TrainOptions { objective, backward, ..options() };
        let (loss, whole) = gradients(&setting, with(Backward::Whole));
        let ways = [1, 2, 3, 4].map(|layers| Backward::Segmented { layers });
        for backward in ways.into_iter().chain([Backward::Checkpointed]) {
            let (other, found) = gradients(&setting, with(backward));
            assert_eq!(first_difference(&found, &whole), None, "{backward:?}");
            assert_eq!(other, loss, "{backward:?}");
        }
        let still = |tensor: &HostTensor| tensor.to_f64().iter().all(|value| *value == 0.0);
        assert!(!whole.values().any(still), "a gradient is 0 everywhere");
    });
}

/// A chunk's products have other numbers of rows, so that other BLAS paths may round.
#[test]
fn a_chunked_head_gives_the_same_gradients_within_rounding() {
    on_mlx_thread(|| {
        let setting = Setting::new("glassllm-f32");
        for objective in [Objective::NextToken, Objective::Orpo { weight: 0.5 }] {
            let (_, whole) = gradients(&setting, TrainOptions { objective, ..options() });
            for (chunk, backward) in [
                (5, Backward::Whole),
                (64, Backward::Checkpointed),
                (7, Backward::Segmented { layers: 2 }),
            ] {
                let head_chunk = Some(chunk);
                let chunked = TrainOptions { objective, backward, head_chunk, ..options() };
                let (_, found) = gradients(&setting, chunked);
                for (name, found) in &found {
                    let off = relative(&found.to_f64(), &whole[name].to_f64());
                    assert!(off <= 1e-5, "{objective:?} chunk {chunk} {name}: {off:e}");
                }
            }
        }
    });
}

/// The norm of the difference over that of `wanted`.
pub fn relative(found: &[f64], wanted: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum();
    let off: f64 = square(&mut found.iter().zip(wanted).map(|(a, b)| a - b));
    let whole: f64 = square(&mut wanted.iter().copied());
    (off / whole).sqrt()
}

#[test]
fn a_trained_adapter_is_saved_loaded_and_mounted_as_any() {
    on_mlx_thread(|| {
        let setting = Setting::new("glassllm-4bit");
        let (mut model, adapter) = setting.load();
        let rows = setting.rows();
        let mut trainer = Trainer::new(&mut model, &adapter, options()).unwrap();
        trainer.step(&rows[0]).unwrap();
        let loss = trainer.loss(&rows[1]).unwrap();
        let trained = trainer.adapter().unwrap();
        assert_ne!(trained.digest(), adapter.digest());
        drop(trainer);
        let dir = tempfile::tempdir().unwrap();
        trained.save(dir.path()).unwrap();
        let loaded = Adapter::load(dir.path()).unwrap();
        assert_eq!(loaded.digest(), trained.digest());
        let again = Trainer::new(&mut model, &loaded, options()).unwrap();
        assert_eq!(again.loss(&rows[1]).unwrap(), loss);
        drop(again);
        model.mount(&loaded).unwrap();
    });
}

#[test]
fn a_new_adapter_changes_nothing_until_it_is_trained() {
    on_mlx_thread(|| {
        let setting = Setting::new("glassllm-4bit");
        let (mut model, _) = setting.load();
        let shape = LoraShape { rank: 2, num_layers: 2, ..LoraShape::default() };
        let adapter = model.new_adapter(&shape, 7).unwrap();
        assert_eq!(adapter.tensors().len(), 2 * 2 * 7, "seven layers of two blocks");
        assert_eq!(adapter.digest(), model.new_adapter(&shape, 7).unwrap().digest());
        assert_ne!(adapter.digest(), model.new_adapter(&shape, 8).unwrap().digest());
        let rows = &setting.rows()[0];
        let mut trainer = Trainer::new(&mut model, &adapter, options()).unwrap();
        let found = trainer.gradients(rows).unwrap();
        let loss = found.loss.value;
        for (name, gradient) in host(&found.gradients) {
            let still = gradient.to_f64().iter().all(|value| *value == 0.0);
            assert_eq!(still, name.ends_with("lora_a"), "{name}: b is 0, so a has no gradient");
        }
        trainer.step(rows).unwrap();
        trainer.step(rows).unwrap();
        assert!(trainer.loss(rows).unwrap().value < loss);
        assert_eq!(trainer.updates(), 2);
    });
}

#[test]
fn what_cannot_be_trained_is_refused_by_name() {
    on_mlx_thread(|| {
        let setting = Setting::new("glassllm-4bit");
        let (mut model, adapter) = setting.load();
        let mut refused = |options: TrainOptions| match Trainer::new(&mut model, &adapter, options)
        {
            Err(EngineError::TrainOption { option, .. }) => option,
            other => panic!("{:?}", other.err()),
        };
        assert_eq!(refused(TrainOptions { accumulate: 0, ..options() }), "accumulate");
        assert_eq!(refused(TrainOptions { clip: Some(f64::NAN), ..options() }), "clip");
        assert_eq!(refused(TrainOptions { head_chunk: Some(0), ..options() }), "head_chunk");
        let backward = Backward::Segmented { layers: 0 };
        assert_eq!(refused(TrainOptions { backward, ..options() }), "backward");
        let mut betas = options();
        betas.optimizer.betas = [1.0, 0.9];
        assert_eq!(refused(betas), "betas");

        let dir =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/models/qwen3-1m");
        let dedicated = LoadOptions { rung: Some(Rung::Dedicated), ..LoadOptions::default() };
        let mut model = Model::load(&dir, &dedicated).unwrap();
        let staged = TrainOptions { backward: Backward::Checkpointed, ..options() };
        match Trainer::new(&mut model, &adapter, staged) {
            Err(EngineError::NotStaged { rung: "dedicated", .. }) => {}
            other => panic!("{:?}", other.err()),
        }
    });
}
